// File: src/config/value_range.h
#pragma once

#include <limits>
#include <string>

#include "src/config/scalar.h"

namespace yardmaster {

// The numbers that a field accepts: an interval with open or closed ends.
struct ValueRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above = false;  // min itself is excluded
  bool below = false;  // max itself is excluded

  bool Contains(double value) const {
    return (above ? value > min : value >= min) && (below ? value < max : value <= max);
  }
  // "at least 1", "above 0 and below 1"; empty if everything is accepted.
  std::string ToString() const {
    std::string out;
    if (min > -std::numeric_limits<double>::infinity())
      out = (above ? "above " : "at least ") + FormatNumber(min);
    if (max < std::numeric_limits<double>::infinity()) {
      out += (out.empty() ? "" : " and ") + std::string(below ? "below " : "at most ") + FormatNumber(max);
    }
    return out;
  }
};

}  // namespace yardmaster
