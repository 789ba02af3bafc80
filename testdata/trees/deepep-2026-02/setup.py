import os

from setuptools import setup

if __name__ == '__main__':
    nvshmem_dir = os.getenv('NVSHMEM_DIR')
    print(f'NVSHMEM directory: {nvshmem_dir}')
    setup(name='deep_ep', version='1.0.0', packages=['deep_ep'])
