// File: src/comm/nccl/nccl_library.h
//
// NCCL, looked up when it is first needed: the program starts, trains on one GPU and on the cpu device where
// there is no NCCL. The library that runs must be the version that this build was compiled against, since
// code compiled for the GPU shares its structures; LD_LIBRARY_PATH decides which of several is found. Private
// to src/comm.
#pragma once

#include <nccl.h>
#include <nccl_device/core.h>

#include <string>

namespace yardmaster {

// NCCL's functions by their own names, without the prefix.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclMemAlloc) MemAlloc;
  decltype(&ncclMemFree) MemFree;
  decltype(&ncclCommWindowRegister) CommWindowRegister;
  decltype(&ncclCommWindowDeregister) CommWindowDeregister;
  ncclTeam_t (*TeamLsa)(ncclComm_t);

  std::string version;  // "2.28.9"
  std::string path;     // of the file that was loaded

  // Throws Error that says the call, the operation (`what`) and NCCL's own words.
  void Check(ncclResult_t result, const char* call, const std::string& what) const;
};

// Loads on the first call. Throws ConfigError when there is no NCCL or it is another version.
const NcclLibrary& Nccl();

}  // namespace yardmaster
