// Blocks of codes that stand for bytes with a sign: Q8_0, and IQ4_NL and IQ4_XS, of which 4 bits choose among 16.
#include "block_kernels.hpp"

namespace penstock {

const BlockKernels kQ8_0Kernels = KernelsOf<Q8_0, ReadQ8_0>::kernels();
const BlockKernels kIq4NlKernels = KernelsOf<Iq4Nl, ReadQ4_0, kIq4Values>::kernels();
const BlockKernels kIq4XsKernels = KernelsOf<Iq4Xs, ReadIq4Xs, kIq4Values>::kernels();

}  // namespace penstock
