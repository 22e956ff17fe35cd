// All GPU kernels, as one program.
#include "conversion.cu"
#include "direct.cu"
