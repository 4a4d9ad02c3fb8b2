#include "src/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr const char* kHint =
    "install NCCL, or put its directory first in LD_LIBRARY_PATH; one rank and the cpu device need none";

std::string VersionText(int version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

NcclLibrary Load() {
  void* handle = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    throw ConfigError(StrCat("several ranks on GPUs need NCCL ", VersionText(NCCL_VERSION_CODE), ": ",
                             why != nullptr ? why : "not found"),
                      kFile, kHint);
  }
  NcclLibrary library{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) throw ConfigError(StrCat("this NCCL has no ", name), kFile, kHint);
  };
  decltype(&ncclGetVersion) get_version = nullptr;
  find(get_version, "ncclGetVersion");
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(get_version), &info) != 0 && info.dli_fname != nullptr)
    library.path = info.dli_fname;
  int version = 0;
  get_version(&version);
  library.version = VersionText(version);
  if (version != NCCL_VERSION_CODE) {
    throw ConfigError(StrCat("NCCL ", library.version, " was loaded, this build is for NCCL ",
                             VersionText(NCCL_VERSION_CODE)),
                      library.path, "put the directory of the right libnccl.so.2 first in LD_LIBRARY_PATH");
  }
  find(library.GetUniqueId, "ncclGetUniqueId");
  find(library.GetErrorString, "ncclGetErrorString");
  find(library.GetLastError, "ncclGetLastError");
  find(library.CommInitRankConfig, "ncclCommInitRankConfig");
  find(library.CommDestroy, "ncclCommDestroy");
  find(library.CommAbort, "ncclCommAbort");
  find(library.CommGetAsyncError, "ncclCommGetAsyncError");
  find(library.GroupStart, "ncclGroupStart");
  find(library.GroupEnd, "ncclGroupEnd");
  find(library.Send, "ncclSend");
  find(library.Recv, "ncclRecv");
  find(library.Broadcast, "ncclBroadcast");
  find(library.MemAlloc, "ncclMemAlloc");
  find(library.MemFree, "ncclMemFree");
  find(library.CommWindowRegister, "ncclCommWindowRegister");
  find(library.CommWindowDeregister, "ncclCommWindowDeregister");
  find(library.TeamLsa, "ncclTeamLsa");
  return library;
}

}  // namespace

void NcclLibrary::Check(ncclResult_t result, const char* call, const std::string& what) const {
  if (result == ncclSuccess) return;
  const char* detail = GetLastError(nullptr);
  const bool hardware = result == ncclUnhandledCudaError;
  throw Error(result == ncclRemoteError ? ExitCode::kWatchdog : ExitCode::kInternal,
              StrCat(what, ": NCCL says '", GetErrorString(result), "'",
                     detail != nullptr && *detail != '\0' ? StrCat(" (", detail, ")") : "", " from ", call),
              StrCat("NCCL ", version),
              hardware ? "an earlier kernel may be the cause: run again with CUDA_LAUNCH_BLOCKING=1"
                       : "run again with NCCL_DEBUG=INFO");
}

const NcclLibrary& Nccl() {
  static const NcclLibrary library = Load();
  return library;
}

}  // namespace yardmaster
