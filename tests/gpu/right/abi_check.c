/* Compares this folder's declarations for NVIDIA's libraries with the toolkit's headers: values of
 * enumerations and types of functions. */
#include <cublas_v2.h>
#include <cudnn.h>
#include <cufft.h>
#include <cusolverDn.h>
#include <nccl.h>

_Static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1, "cublas.c");
_Static_assert(CUFFT_C2C == 0x29 && CUFFT_FORWARD == -1 && CUFFT_INVERSE == 1, "cufft.c");
_Static_assert(CUDNN_TENSOR_NCHW == 0 && CUDNN_DATA_FLOAT == 0 && CUDNN_CROSS_CORRELATION == 1,
               "cudnn.c");
_Static_assert(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM == 0 &&
                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM == 1,
               "cudnn.c");
_Static_assert(ncclFloat == 7 && ncclSum == 0, "nccl.c");

#define TAKES(function, ...)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), __typeof__(__VA_ARGS__)),  \
                   #function)

typedef cublasStatus_t gemm_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const float *, const float *, int, const float *, int,
                              const float *, float *, int);
typedef cufftResult plan_t(cufftHandle *, int, cufftType, int);
typedef cufftResult transform_t(cufftHandle, cufftComplex *, cufftComplex *, int);
typedef cusolverStatus_t room_t(cusolverDnHandle_t, int, int, float *, int, int *);
typedef cusolverStatus_t factorise_t(cusolverDnHandle_t, int, int, float *, int, float *, int *,
                                     int *);
typedef cudnnStatus_t tensor_is_t(cudnnTensorDescriptor_t, cudnnTensorFormat_t, cudnnDataType_t,
                                  int, int, int, int);
typedef cudnnStatus_t filter_is_t(cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t,
                                  int, int, int, int);
typedef cudnnStatus_t convolution_is_t(cudnnConvolutionDescriptor_t, int, int, int, int, int, int,
                                       cudnnConvolutionMode_t, cudnnDataType_t);
typedef ncclResult_t init_t(ncclComm_t *, int, const int *);
typedef ncclResult_t sum_all_t(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
TAKES(cublasSgemm_v2, gemm_t);
TAKES(cufftPlan1d, plan_t);
TAKES(cufftExecC2C, transform_t);
TAKES(cusolverDnSgetrf_bufferSize, room_t);
TAKES(cusolverDnSgetrf, factorise_t);
TAKES(cudnnSetTensor4dDescriptor, tensor_is_t);
TAKES(cudnnSetFilter4dDescriptor, filter_is_t);
TAKES(cudnnSetConvolution2dDescriptor, convolution_is_t);
TAKES(ncclCommInitAll, init_t);
TAKES(ncclAllReduce, sum_all_t);

typedef cudnnStatus_t workspace_t(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                  const cudnnFilterDescriptor_t,
                                  const cudnnConvolutionDescriptor_t,
                                  const cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t,
                                  size_t *);
typedef cudnnStatus_t forward_t(cudnnHandle_t, const void *, const cudnnTensorDescriptor_t,
                                const void *, const cudnnFilterDescriptor_t, const void *,
                                const cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t,
                                void *, size_t, const void *, const cudnnTensorDescriptor_t,
                                void *);
TAKES(cudnnGetConvolutionForwardWorkspaceSize, workspace_t);
TAKES(cudnnConvolutionForward, forward_t);
