#include "src/base/error.h"

namespace yardmaster {
namespace {

std::string Compose(const std::string& what, const std::string& where, const std::string& hint) {
  std::string out;
  if (!where.empty()) out += where + ": ";
  out += what;
  if (!hint.empty()) out += "\n  hint: " + hint;
  return out;
}

}  // namespace

Error::Error(ExitCode code, const std::string& what, const std::string& where, const std::string& hint)
    : std::runtime_error(Compose(what, where, hint)), code_(code) {}

}  // namespace yardmaster
