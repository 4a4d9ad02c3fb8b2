// Which build this is: the version, the commit, and whether CUDA was compiled in.
#pragma once

const char* YardmasterVersion();

// A short commit hash, with "+changes" where the tree had uncommitted edits;
// "unknown" where there is no git, "unstamped" in the binaries that tests use.
const char* YardmasterCommit();

// One sentence: the CUDA, cuDNN and NCCL versions compiled against, or what was missing.
const char* YardmasterCudaStatus();
