#include "src/model/standalone.h"

namespace yardmaster {
namespace {

template <class T>
T ReadOne(Device& device, const Tensor& x) {
  T value{};
  YM_CHECK_EQ(x.bytes(), static_cast<int64_t>(sizeof(T)));
  device.CopyToHost(&value, x.data(), sizeof(T));
  return value;
}

template <class T>
void Write(Device& device, const Tensor& x, const std::vector<T>& values) {
  YM_CHECK_EQ(x.elements(), static_cast<int64_t>(values.size()));
  device.CopyFromHost(x.data(), values.data(), values.size() * sizeof(T));
}

}  // namespace

StandaloneModel::StandaloneModel(const ModelConfig& config, const StandaloneOptions& options, Device& device)
    : config_(config),
      options_(options),
      device_(device),
      weights_("weights", &device),
      grads_("gradients", &device),
      io_("batch", &device),
      saved_("saved", &device),
      work_("workspace", &device),
      ctx_{Stream(&device), work_, options.types, options.how} {
  if (config.n_routed_experts > 0) {
    dispatcher_ = std::make_unique<LocalDispatcher>(config.n_routed_experts, config.num_experts_per_tok);
  }
  model_ = MakeModel(config,
                     {.types = options.types,
                      .max_positions = options.S,
                      .attend_across_documents = options.attend_across_documents,
                      .moe = options.moe},
                     dispatcher_.get());
  Layout();
  {
    // The plan: the same micro-batch on the dry device, through the same arenas, which measure until they are
    // committed.
    const std::unique_ptr<Device> dry = MakeDryDevice(device.target());
    Context ctx{Stream(dry.get()), work_, options.types, options.how};
    MicroBatch mb = mb_;
    const ForwardTaps taps{.hidden = {}, .routing = {}, .logits = logits_, .mtp_logits = mtp_logits_};
    mb.training = false;
    model_->RunForward(ctx, mb, acc_, &taps);
    if (options.gradients) {
      mb.training = true;
      model_->RunForward(ctx, mb, acc_, &taps);
      model_->RunBackward(ctx, mb);
    }
  }
  for (Arena* arena : {&weights_, &grads_, &io_, &saved_, &work_}) {
    arena->Release(0);
    arena->set_poison(options.poison);
  }
  planned_ = used();
  for (Arena* arena : {&weights_, &grads_, &io_, &saved_, &work_}) arena->Commit(arena->high_water());
  Layout();
  std::vector<int32_t> positions(static_cast<size_t>(mb_.T()));
  for (size_t t = 0; t < positions.size(); ++t)
    positions[t] = static_cast<int32_t>(static_cast<int64_t>(t) % options.S);
  Write(device_, mb_.positions, positions);
  Write(device_, acc_.overflow, std::vector<int32_t>{0});
  BeginStep();
}

void StandaloneModel::Layout() {
  const int64_t T = options_.B * options_.S;
  AllocateParameters(model_->registry().list(), options_.types, weights_,
                     options_.gradients ? &grads_ : nullptr);
  model_->Allocate(weights_, device_);
  mb_.B = options_.B;
  mb_.S = options_.S;
  mb_.saved = &saved_;
  mb_.training = options_.gradients;
  mb_.tokens = io_.Allocate("tokens", DType::kI32, {T});
  mb_.targets = io_.Allocate("targets", DType::kI32, {T});
  mb_.positions = io_.Allocate("positions", DType::kI32, {T});
  mb_.document_start = options_.attend_across_documents
                           ? Tensor()
                           : io_.Allocate("document start", DType::kI32, {options_.B, options_.S});
  acc_.loss_sum = io_.Allocate("loss", DType::kF64, {1});
  acc_.valid = io_.Allocate("valid", DType::kI64, {1});
  mtp_valid_ = io_.Allocate("mtp valid", DType::kI64, {1});
  mb_.mtp_scale = io_.Allocate("mtp scale", DType::kF64, {1});
  acc_.sums =
      io_.Allocate("sums", DType::kF64, {1 + static_cast<int64_t>(model_->moe_layers().size()), kStepSums});
  acc_.overflow = io_.Allocate("overflow", DType::kI32, {1});
  logits_ =
      options_.logits ? io_.Allocate("logits", options_.types.compute, {T, config_.vocab_size}) : Tensor();
  mtp_logits_.clear();
  for (int64_t d = 0; options_.logits && d < config_.num_nextn_predict_layers; ++d)
    mtp_logits_.push_back(io_.Allocate("mtp logits", options_.types.compute, {T, config_.vocab_size}));
}

void StandaloneModel::SetBatch(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
  Write(device_, mb_.tokens, tokens);
  Write(device_, mb_.targets, targets);
  int64_t valid = 0;
  for (const int32_t t : targets) valid += t >= 0;
  mb_.grad_scale = valid > 0 ? 1 / static_cast<double>(valid) : 0;
  ScaleMtp();
}

void StandaloneModel::ScaleMtp() {
  Write(device_, mtp_valid_, std::vector<int64_t>{0});
  model_->CountMtpTargets(ctx_, mb_, mtp_valid_);
  const auto valid = static_cast<double>(ReadOne<int64_t>(device_, mtp_valid_));
  Write(device_, mb_.mtp_scale, std::vector<double>{valid > 0 ? options_.mtp_weight / valid : 0});
}

void StandaloneModel::SetDocumentStart(const std::vector<int32_t>& document_start) {
  Write(device_, mb_.document_start, document_start);
  ScaleMtp();
}

void StandaloneModel::BeginStep() {
  model_->registry().list().BeginStep();
  Write(device_, acc_.loss_sum, std::vector<double>{0});
  Write(device_, acc_.valid, std::vector<int64_t>{0});
  Write(device_, acc_.sums, std::vector<double>(static_cast<size_t>(acc_.sums.elements()), 0.0));
}

void StandaloneModel::Forward(const ForwardTaps* taps) { model_->RunForward(ctx_, mb_, acc_, taps); }

double StandaloneModel::Evaluate() {
  BeginStep();
  const bool training = mb_.training;
  mb_.training = false;
  Forward();
  mb_.training = training;
  return loss();
}

double StandaloneModel::loss() const {
  return ReadOne<double>(device_, acc_.loss_sum) / static_cast<double>(valid());
}

double StandaloneModel::mtp_loss() const {
  return ReadOne<double>(device_, acc_.sums.At(0).Slice(kMtpLoss, kMtpLoss + 1)) /
         static_cast<double>(ReadOne<int64_t>(device_, mtp_valid_));
}

int64_t StandaloneModel::valid() const { return ReadOne<int64_t>(device_, acc_.valid); }

bool StandaloneModel::overflow() const { return ReadOne<int32_t>(device_, acc_.overflow) != 0; }

StandaloneModel::Bytes StandaloneModel::used() const {
  return {weights_.high_water(), grads_.high_water(), saved_.high_water(), work_.high_water()};
}

}  // namespace yardmaster
