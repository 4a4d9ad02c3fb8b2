// File: src/ops/cuda/cuda_stream.h
//
// What every op's CUDA version starts with.
#pragma once

#include "src/device/cuda/cuda_stream.h"
