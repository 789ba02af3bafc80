#include "nvshmem.h"
#include "options.h"

long nvshmem_built_with(enum nvshmem_build what)
{
	switch (what) {
	case NVSHMEM_NCCL:
		return NVSHMEM_USE_NCCL;
	case NVSHMEM_IBGDA:
		return NVSHMEM_IBGDA_SUPPORT;
	case NVSHMEM_MPI:
		return NVSHMEM_MPI_SUPPORT;
	case NVSHMEM_CPLUSPLUS:
		return __cplusplus;
	}
	return -1;
}
