// File: src/device/openblas_setup.h
//
// OpenBLAS chooses its kernels by processor when it is loaded. An old one does not know a newer
// processor and either falls back to kernels of 2004 (0.3.21 on Intel's Emerald Rapids: a sixth of
// the speed) or picks kernels that are wrong there. PrepareOpenBlas() chooses again where needed,
// multiplies a few matrices of each type, and compares with plain code.
#pragma once

#include <string>

namespace yardmaster {

// Once per process (later calls return the first result). OpenBLAS is set to one thread: the cpu
// device splits GEMMs over its own threads. Returns "OpenBLAS 0.3.21, SkylakeX kernels". Throws
// Error(kConfig) that names OPENBLAS_CORETYPE when no kernels give right results. A core type that
// the user set in OPENBLAS_CORETYPE is kept.
std::string PrepareOpenBlas();

}  // namespace yardmaster
