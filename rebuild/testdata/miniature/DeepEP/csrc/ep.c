#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nvshmem.h>

static PyObject *built_with(PyObject *self, PyObject *args)
{
	return Py_BuildValue("{s:l,s:l,s:l,s:l,s:l}",
		"nccl", nvshmem_built_with(NVSHMEM_NCCL),
		"ibgda", nvshmem_built_with(NVSHMEM_IBGDA),
		"mpi", nvshmem_built_with(NVSHMEM_MPI),
		"cplusplus", nvshmem_built_with(NVSHMEM_CPLUSPLUS),
		"patched", nvshmem_built_with(NVSHMEM_PATCHED));
}

static PyMethodDef methods[] = {
	{"built_with", built_with, METH_NOARGS, "Says how NVSHMEM was built."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "mini_ep_c", NULL, -1, methods};

PyMODINIT_FUNC PyInit_mini_ep_c(void)
{
	return PyModule_Create(&module);
}
