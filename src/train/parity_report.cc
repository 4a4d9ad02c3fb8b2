#include "src/train/parity_report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

namespace yardmaster {
namespace {

std::vector<double> Doubles(const Tensor& x) {
  std::vector<double> out(static_cast<size_t>(x.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    const char* at = static_cast<const char*>(x.data()) + i * static_cast<size_t>(DTypeBytes(x.dtype()));
    switch (x.dtype()) {
      case DType::kF32: {
        float v;
        std::memcpy(&v, at, 4);
        out[i] = v;
        break;
      }
      case DType::kF64: std::memcpy(&out[i], at, 8); break;
      case DType::kI32: {
        int32_t v;
        std::memcpy(&v, at, 4);
        out[i] = v;
        break;
      }
      case DType::kI64: {
        int64_t v;
        std::memcpy(&v, at, 8);
        out[i] = static_cast<double>(v);
        break;
      }
      case DType::kBF16: {
        BFloat16 v;
        std::memcpy(&v.bits, at, 2);
        out[i] = static_cast<float>(v);
        break;
      }
      default: throw DataError(StrCat("a reference of ", DTypeName(x.dtype()), " cannot be compared"));
    }
  }
  return out;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

double Largest(const std::vector<double>& x) {
  double most = 0;
  for (const double v : x) most = std::isnan(v) ? v : std::max(most, std::abs(v));
  return most;
}

std::vector<double> Minus(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d(a.size());
  for (size_t i = 0; i < a.size(); ++i) d[i] = a[i] - b[i];
  return d;
}

double Ratio(double a, double b) { return a == 0 ? 0 : a / b; }  // 0 / 0: equal

// The largest relative difference of two elements; NaN if one is not finite.
double WorstRatio(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, Ratio(std::abs(a[i] - b[i]), std::abs(b[i])));
  }
  return worst;
}

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

class Comparison {
 public:
  Comparison(const std::vector<NamedTensor>& ours, const SafetensorsFile& expected,
             const SafetensorsFile* grads, const ParityTolerances& tolerances,
             const std::function<bool(const std::string&)>& skip)
      : expected_(expected), grads_(grads), tolerances_(tolerances) {
    const auto looked_at = [&](const std::string& name) { return !skip || !skip(name); };
    for (const NamedTensor& t : ours) {
      if (looked_at(t.name)) ours_[t.name] = t.tensor;
    }
    for (const std::string& name : expected.names()) {
      if (looked_at(name)) expected_names_.push_back(name);
    }
  }

  std::vector<ParityRow> Run() {
    Loss("loss");
    RelativeToLargest("logits", tolerances_.logits);
    for (const std::string& name : expected_names_) {
      if (!StartsWith(name, "mtp.") && name != "aux.per_layer" && name != "total") continue;
      name.ends_with(".loss") || name == "total" ? Loss(name) : RelativeToLargest(name, tolerances_.logits);
    }
    Routing();
    for (const std::string& name : expected_names_) {
      if (StartsWith(name, "hidden.")) RelativeToLargest(name, tolerances_.hidden);
      if (StartsWith(name, "routing_weight.")) RelativeToLargest(name, tolerances_.routing_weights);
    }
    AdamW();
    Gradients();
    for (const std::string& name : expected_names_) {
      const bool input = name == "tokens" || name == "targets";
      if (!input && seen_.count(name) == 0)
        rows_.push_back({name, 0, -1, "in the reference, but not computed here", true});
    }
    return rows_;
  }

 private:
  void Add(const std::string& what, double difference, double tolerance, const std::string& note = "") {
    const bool failed = std::isnan(difference) || (tolerance >= 0 && !(difference <= tolerance));
    rows_.push_back({what, difference, tolerance, note, failed});
  }

  // Both sides' values, or false with a row that says what is missing.
  bool Pair(const std::string& name, std::vector<double>* ours, std::vector<double>* theirs,
            bool any_length = false) {
    seen_.insert(name);
    const auto at = ours_.find(name);
    if (!expected_.Has(name) || at == ours_.end()) {
      rows_.push_back({name, 0, -1, at == ours_.end() ? "not computed here" : "not in the reference", true});
      return false;
    }
    *ours = Doubles(at->second);
    *theirs = Doubles(expected_.Get(name));
    if (any_length) {
      const size_t n = std::min(ours->size(), theirs->size());
      ours->resize(n), theirs->resize(n);
    } else if (!(at->second.shape() == expected_.Get(name).shape())) {
      rows_.push_back({name, 0, -1,
                       StrCat("shape ", at->second.shape(), ", reference ", expected_.Get(name).shape()),
                       true});
      return false;
    }
    return true;
  }

  void Loss(const std::string& name) {
    std::vector<double> a, b;
    if (!Pair(name, &a, &b)) return;
    Add(name, Ratio(Largest(Minus(a, b)), Largest(b)), tolerances_.loss,
        StrFormat("%.9g, reference %.9g", a[0], b[0]));
  }

  void RelativeToLargest(const std::string& name, double tolerance) {
    std::vector<double> a, b;
    if (Pair(name, &a, &b))
      Add(name, Ratio(Largest(Minus(a, b)), Largest(b)), tolerance, StrFormat("largest %.4g", Largest(b)));
  }

  void Routing() {
    for (const auto& [name, tensor] : ours_) {
      if (!StartsWith(name, "routing.")) continue;
      std::vector<double> a, b;
      if (!Pair(name, &a, &b)) continue;
      int64_t different = 0;
      for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i];
      Add(name, static_cast<double>(different), tolerances_.routing, StrCat("different of ", a.size(), " choices"));
    }
  }

  void AdamW() {
    if (!expected_.Has("adamw.loss")) {
      rows_.push_back({"adamw", 0, -1, "SKIPPED: the reference has no training steps", false});
      return;
    }
    std::vector<double> a, b;
    if (!Pair("adamw.loss", &a, &b, /*any_length=*/true)) return;
    Add("adamw.loss", WorstRatio(a, b), tolerances_.adamw_loss, StrCat("worst of ", a.size(), " steps"));
    if (!Pair("adamw.grad_norm", &a, &b, /*any_length=*/true)) return;
    Add("adamw.grad_norm", WorstRatio(a, b), -1, StrCat("worst of ", a.size(), " steps"));
  }

  void Gradients() {
    if (grads_ == nullptr) {
      rows_.push_back({"gradients", 0, -1, "SKIPPED: no grads.safetensors beside the model", false});
      return;
    }
    double all = 0, squares = 0;
    for (const std::string& name : grads_->names()) all += std::pow(Norm(Doubles(grads_->Get(name))), 2);
    const double floor = tolerances_.gradient_floor * std::sqrt(all);
    std::vector<ParityRow> rows;
    for (const std::string& name : grads_->names()) {
      const auto at = ours_.find("grad." + name);
      if (at == ours_.end() || !(at->second.shape() == grads_->Get(name).shape())) {
        rows_.push_back({"grad." + name, 0, -1, "not computed here, or of another shape", true});
        continue;
      }
      const std::vector<double> a = Doubles(at->second), b = Doubles(grads_->Get(name));
      const double apart = Norm(Minus(a, b)), norm = Norm(b), difference = apart / std::max(norm, floor);
      squares += apart * apart;
      const double tolerance = tolerances_.gradients;
      rows.push_back({"grad." + name, floor > 0 ? difference : Norm(a), tolerance,
                      norm < floor ? StrFormat("norm %.3g, below the floor %.3g", norm, floor)
                                   : StrFormat("norm %.3g", norm),
                      std::isnan(difference) || (tolerance >= 0 && !(difference <= tolerance))});
    }
    for (const auto& [name, tensor] : ours_) {
      if (StartsWith(name, "grad.") && !grads_->Has(name.substr(5))) {
        rows_.push_back({name, 0, -1, "computed here, but not in grads.safetensors", true});
      }
    }
    Add("all gradients", Ratio(std::sqrt(squares), std::sqrt(all)), tolerances_.all_gradients,
        "relative L2 of all together");
    std::stable_sort(rows.begin(), rows.end(), [](const ParityRow& a, const ParityRow& b) {
      if (a.failed != b.failed) return a.failed;
      return a.difference > b.difference;  // NaN has failed and is on top
    });
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }

  const SafetensorsFile& expected_;
  const SafetensorsFile* grads_;
  ParityTolerances tolerances_;
  std::vector<std::string> expected_names_;
  std::map<std::string, Tensor> ours_;
  std::set<std::string> seen_;
  std::vector<ParityRow> rows_;
};

}  // namespace

std::vector<ParityRow> CompareParity(const std::vector<NamedTensor>& ours, const SafetensorsFile& expected,
                                     const SafetensorsFile* grads, const ParityTolerances& tolerances,
                                     const std::function<bool(const std::string&)>& skip) {
  return Comparison(ours, expected, grads, tolerances, skip).Run();
}

std::string ParityTable(const std::vector<ParityRow>& rows) {
  size_t width = 4;
  for (const ParityRow& r : rows) width = std::max(width, r.what.size());
  const int w = static_cast<int>(width);
  std::string table = StrFormat("%-*s  %10s  %9s  %-4s  %s\n", w, "what", "difference", "tolerance", "", "");
  int64_t failed = 0;
  for (const ParityRow& r : rows) {
    failed += r.failed;
    const std::string tolerance = r.tolerance < 0 ? "-" : StrFormat("%.0e", r.tolerance);
    const char* verdict = r.failed ? "FAIL" : r.tolerance < 0 ? "" : "ok";
    table += StrFormat("%-*s  %10.3e  %9s  %-4s  %s\n", w, r.what.c_str(), r.difference, tolerance.c_str(),
                       verdict, r.note.c_str());
  }
  return table +
         (failed == 0 ? "parity: PASS" : StrCat("parity: FAIL, ", failed, " of ", rows.size(), " rows"));
}

}  // namespace yardmaster
