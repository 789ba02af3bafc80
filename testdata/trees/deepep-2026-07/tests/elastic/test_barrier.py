import argparse
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import deep_ep
from deep_ep.utils.envs import dist_print, init_dist
from deep_ep.utils.testing import bench


# The whole test is one function, which is spawned itself
def test(local_rank: int, num_local_ranks: int, args: argparse.Namespace):
    _, num_ranks, group = init_dist(local_rank, num_local_ranks)
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens=0)
    t = bench(buffer.barrier)
    dist_print(f' > {num_ranks} ranks, barrier: {t * 1e6:.3f} us')

    buffer.destroy()
    dist.destroy_process_group()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='Test the barrier')
    parser.add_argument('--num-processes', type=int, default=2)
    args = parser.parse_args()

    torch.multiprocessing.spawn(test, args=(args.num_processes, args), nprocs=args.num_processes)
