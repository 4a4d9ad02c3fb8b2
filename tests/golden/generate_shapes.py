# Generates the small cases under shapes/: models of odd shapes, by the functions of generate.py beside it.
#   OUT=tests/golden/shapes python3 tests/golden/generate_shapes.py
import os
here = os.path.dirname(os.path.abspath(__file__))
source = open(os.path.join(here, 'generate.py')).read()
exec(source[:source.index('import traceback')])  # its functions, without running its own cases

def case(name, seed, B, T, yarn=None, theta=10000.0, hub_overrides={}, **kw):
    base = dict(model_type='deepseek_v3', vocab_size=61, hidden_size=32, intermediate_size=40, moe_intermediate_size=12,
                num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, n_shared_experts=1, n_routed_experts=8,
                routed_scaling_factor=2.5, kv_lora_rank=8, q_lora_rank=12, qk_rope_head_dim=8, v_head_dim=6,
                qk_nope_head_dim=8, n_group=2, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1,
                norm_topk_prob=True, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False,
                attention_bias=False, rope_interleave=True)
    base.update(kw)
    base['num_key_value_heads'] = base['num_attention_heads']
    v5 = dict(rope_type='default', rope_theta=theta)
    hub = dict(rope_theta=theta, scoring_func='sigmoid', topk_method='noaux_tc', architectures=['DeepseekV3ForCausalLM'],
               torch_dtype='float32', moe_layer_freq=1)
    if yarn:
        v5 = dict(yarn, rope_type='yarn', rope_theta=theta)
        hub['rope_scaling'] = dict(yarn, type='yarn')
    base['rope_parameters'] = v5
    hub.update(hub_overrides)
    if 'topk_method' in kw: hub['topk_method'] = kw['topk_method']
    mk(name, base, seed, B, T, 8, hub)

yarn32 = dict(factor=8.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
case('shared_three_no_yarn_odd', 21, 3, 13, n_shared_experts=3, vocab_size=97)
case('one_group_direct_q', 22, 2, 17, n_group=1, topk_group=1, q_lora_rank=None, num_experts_per_tok=3, yarn=yarn32)
case('top1_unnormalised', 23, 2, 11, num_experts_per_tok=1, norm_topk_prob=False, routed_scaling_factor=1.0, n_group=4,
     topk_group=2, first_k_dense_replace=0)
case('every_expert', 24, 1, 19, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=4, hidden_size=27,
     num_attention_heads=3, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=7, intermediate_size=33,
     moe_intermediate_size=11, num_hidden_layers=3, first_k_dense_replace=2)
case('yarn_mscales_long', 25, 1, 70, yarn=dict(yarn32, mscale=0.7, mscale_all_dim=0.4, beta_fast=16.0, beta_slow=2.0),
     theta=500000.0, qk_rope_head_dim=16)
case('yarn_no_mscale_all_dim', 26, 2, 9, yarn=dict(yarn32, mscale=0.707, mscale_all_dim=0.0))
case('empty_experts', 27, 1, 3, n_routed_experts=16, n_group=4, topk_group=2)

# Other families: the forms of their routers that the larger cases do not have.
def v2(name, seed, B, T, **kw):
    case(name, seed, B, T, hub_overrides=dict(scoring_func='softmax', architectures=['DeepseekV2ForCausalLM']),
         **dict(dict(model_type='deepseek_v2', q_lora_rank=None, norm_topk_prob=False, routed_scaling_factor=1.0,
                     aux_loss_alpha=0.0, topk_method='group_limited_greedy'), **kw))

def gqa(name, seed, B, T, model_type, architecture, **kw):
    base = dict(model_type=model_type, vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=10, max_position_embeddings=256, rms_norm_eps=1e-6,
                tie_word_embeddings=False, rope_parameters=dict(rope_type='default', rope_theta=10000.0))
    base.update(kw)
    mk(name, base, seed, B, T, 8, dict(rope_theta=10000.0, architectures=[architecture], torch_dtype='float32'))

v2('v2_grouped', 31, 2, 13, n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=3)
v2('v2_grouped_one_of_eight_scaled', 32, 1, 21, n_routed_experts=16, n_group=8, topk_group=3, num_experts_per_tok=4,
   q_lora_rank=12, routed_scaling_factor=16.0, n_shared_experts=2)
v2('v2_greedy_top1', 33, 3, 7, topk_method='greedy', n_group=1, topk_group=1, num_experts_per_tok=1,
   first_k_dense_replace=0)
case('v3_groups_of_two', 34, 2, 15, n_routed_experts=16, n_group=8, topk_group=3, num_experts_per_tok=5)
qwen3 = dict(model_type='qwen3_moe', architecture='Qwen3MoeForCausalLM', intermediate_size=40, moe_intermediate_size=12,
             decoder_sparse_step=1, mlp_only_layers=[])
gqa('qwen3_unnormalised_odd', 35, 3, 11, norm_topk_prob=False, num_experts=10, num_experts_per_tok=3,
    num_attention_heads=6, num_key_value_heads=3, vocab_size=67, **qwen3)
gqa('qwen3_top1_one_key_head', 36, 1, 23, norm_topk_prob=False, num_experts=6, num_experts_per_tok=1,
    num_key_value_heads=1, **qwen3)
mixtral_ = dict(model_type='mixtral', architecture='MixtralForCausalLM', intermediate_size=12, sliding_window=None)
gqa('mixtral_odd', 37, 2, 9, num_local_experts=5, num_experts_per_tok=2, **mixtral_)
gqa('mixtral_every_expert', 38, 1, 17, num_local_experts=3, num_experts_per_tok=3, num_key_value_heads=4, hidden_size=27,
    vocab_size=59, **mixtral_)
# Normalised top-1: the weight is 1 whatever the router says, and its gradient zero but for the reference's rounding.
gqa('mixtral_top1', 39, 2, 9, num_local_experts=5, num_experts_per_tok=1, **mixtral_)
case('v3_top1_normalised', 40, 1, 13, num_experts_per_tok=1)
