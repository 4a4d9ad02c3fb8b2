#include "src/train/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr char kVariable[] = "YARDMASTER_FAULT_STEP";

Parameter& Find(Engine& engine, const std::string& name) {
  for (const auto& p : engine.registry().parameters()) {
    if (p->name.find(name) != std::string::npos) return *p;
  }
  throw ConfigError(StrCat("no parameter has '", name, "' in its name"), kVariable);
}

int64_t Number(const std::string& text, const std::string& field) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0')
    throw ConfigError(StrCat("'", text, "' is no number for '", field, "'"), kVariable);
  return value;
}

// Changes the first element of a tensor, of type T.
template <class T, class F>
void Change(Device& device, const Tensor& t, F&& f) {
  T value{};
  device.CopyToHost(&value, t.data(), sizeof(T));
  f(value);
  device.CopyFromHost(t.data(), &value, sizeof(T));
}

}  // namespace

StepFault ParseStepFault(const std::string& text) {
  StepFault fault;
  for (const std::string& part : StrSplit(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals),
                      value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "kind") {
      fault.kind = value;
    } else if (key == "rank") {
      fault.rank = Number(value, key);
    } else if (key == "step") {
      fault.step = Number(value, key);
    } else if (key == "count") {
      fault.count = Number(value, key);
    } else if (key == "tensor") {
      fault.tensor = value;
    } else {
      throw ConfigError(StrCat("unknown field '", key, "'"), kVariable, "kind, rank, step, count, tensor");
    }
  }
  static const char* const kKinds[] = {"nan", "flip", "count", "throw", "bug", "stall", "kill"};
  if (std::find(std::begin(kKinds), std::end(kKinds), fault.kind) == std::end(kKinds))
    throw ConfigError(StrCat("unknown kind '", fault.kind, "'"), kVariable,
                      "nan, flip, count, throw, bug, stall or kill");
  if (fault.step < 1 || fault.count < 1 || fault.rank < 0)
    throw ConfigError("no step of any rank would have this fault: steps count from 1, ranks from 0", kVariable,
                      "kind=nan,rank=0,step=3,count=1");
  return fault;
}

StepFaults::StepFaults(int64_t rank, int64_t ranks) {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return;
  fault_ = ParseStepFault(text);
  if (fault_.rank >= ranks)
    throw ConfigError(StrCat("rank ", fault_.rank, " is to have the fault, the ranks are 0 to ", ranks - 1), kVariable);
  mine_ = fault_.rank == rank;
}

bool StepFaults::At(int64_t step, const char* kind) const {
  return mine_ && fault_.kind == kind && fault_.step <= step && step < fault_.step + fault_.count;
}

void StepFaults::BeforeBatch(int64_t step) const {
  if (At(step, "kill")) ::raise(SIGKILL);
  while (At(step, "stall")) ::pause();
  if (At(step, "throw")) throw DataError("a fault that a test asked for", kVariable);
}

void StepFaults::AfterBackward(int64_t step, Engine& engine) const {
  if (At(step, "nan")) {
    Parameter& p = Find(engine, fault_.tensor);
    DispatchFloat(p.grad.dtype(), [&]<class T>() {
      Change<T>(engine.device(), p.grad, [](T& value) { value = static_cast<T>(std::nan("")); });
    });
    p.squared = false;  // they are of the values before
  }
  if (At(step, "bug")) throw InternalError(StrCat("a bug that ", kVariable, " asked for"));
  if (At(step, "count")) {
    const Tensor load = engine.model().load_counts();
    Change<int64_t>(engine.device(), load, [](int64_t& pairs) { --pairs; });
  }
}

void StepFaults::AfterStep(int64_t step, Engine& engine) const {
  if (!At(step, "flip")) return;
  const Parameter& p = Find(engine, fault_.tensor);
  // Of what is multiplied. The lowest bit of a number's mantissa: nothing but a comparison finds it.
  Change<unsigned char>(engine.device(), p.copies.defined() ? p.copies.rows.codes : p.value,
                        [](unsigned char& byte) { byte ^= 1; });
}

}  // namespace yardmaster
