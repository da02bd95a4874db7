// Blocks of codes that stand for bytes with a sign: Q8_0, and those of which 4 bits choose among 16, IQ1 to IQ4.
#include "block_kernels.hpp"

namespace penstock {

const BlockKernels kQ8_0Kernels = KernelsOf<Q8_0, ReadQ8_0>::kernels();
const BlockKernels kIq4NlKernels = KernelsOf<Iq4Nl, ReadQ4_0, kIq4Values>::kernels();
const BlockKernels kIq4XsKernels = KernelsOf<Iq4Xs, ReadIq4Xs, kIq4Values>::kernels();
const BlockKernels kIq1Kernels = KernelsOf<LookedUp, NoReader, kIq1Values, 8>::kernels();
const BlockKernels kIq2Kernels = KernelsOf<LookedUp, NoReader, kIq2Values, 8>::kernels();
const BlockKernels kIq3XxsKernels = KernelsOf<LookedUp, NoReader, kIq3XxsValues, 4>::kernels();
const BlockKernels kIq3SKernels = KernelsOf<LookedUp, NoReader, kIq3SValues>::kernels();

}  // namespace penstock
