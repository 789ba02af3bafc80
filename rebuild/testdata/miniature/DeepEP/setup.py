import os

import setuptools

nvshmem = os.environ["NVSHMEM_DIR"]

setuptools.setup(
    name="mini_ep",
    version="1.0",
    packages=["mini_ep"],
    ext_modules=[
        setuptools.Extension(
            "mini_ep_c",
            ["csrc/ep.c"],
            include_dirs=[nvshmem + "/include"],
            library_dirs=[nvshmem + "/lib"],
            libraries=["nvshmem_host"],
            extra_link_args=["-Wl,-rpath," + nvshmem + "/lib"],
        )
    ],
)
