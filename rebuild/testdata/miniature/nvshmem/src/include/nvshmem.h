#ifndef NVSHMEM_H
#define NVSHMEM_H

#ifdef __cplusplus
extern "C" {
#endif

enum nvshmem_build { NVSHMEM_NCCL, NVSHMEM_IBGDA, NVSHMEM_MPI, NVSHMEM_CPLUSPLUS };

/* Says how the library was built. */
long nvshmem_built_with(enum nvshmem_build what);

#ifdef __cplusplus
}
#endif

#endif
