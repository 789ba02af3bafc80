import argparse
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import deep_ep
from deep_ep.utils.envs import init_dist
from deep_ep.utils.testing import bench


def test_main(num_tokens: int, hidden: int, rank: int, num_ranks: int,
              group: dist.ProcessGroup, buffer: deep_ep.Buffer, seed: int = 0):
    torch.manual_seed(seed)
    x = torch.rand(num_tokens, hidden)
    combined_x = buffer.combine(x)
    assert torch.allclose(combined_x, x * num_ranks)

    group_size = dist.get_world_size(group)
    t = bench(lambda: buffer.combine(x))
    print(f'[rank {rank}] Combine bandwidth: {group_size * x.numel() * 4 / 1e9 / t:.2f} GB/s, '
          f'avg_t={t * 1e6:.2f} us', flush=True)
    return int(combined_x.sum().item() * 1e3)


def test_loop(local_rank: int, num_local_ranks: int, args: argparse.Namespace):
    rank, num_ranks, group = init_dist(local_rank, num_local_ranks)
    num_tokens, hidden = args.num_tokens, args.hidden

    num_rdma_bytes = deep_ep.Buffer.rdma_size(num_tokens, hidden, num_ranks)
    if local_rank == 0:
        print(f'Buffer of {num_rdma_bytes} bytes', flush=True)
    buffer = deep_ep.Buffer(group, num_rdma_bytes=num_rdma_bytes, low_latency=True)
    test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=1)

    for seed in range(args.num_rounds):
        if local_rank == 0:
            print(f'Round {seed}', flush=True)
        expected = test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=seed)
        for _ in range(3):
            assert test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=seed) == expected, f'round {seed} differs'

    # Give the buffer back, then leave the process group together
    buffer.destroy()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='Test low-latency kernels')
    parser.add_argument('--num-processes', type=int, default=2)
    parser.add_argument('--num-tokens', type=int, default=16)
    parser.add_argument('--hidden', type=int, default=128)
    parser.add_argument('--num-rounds', type=int, default=0)
    args = parser.parse_args()

    num_processes = args.num_processes
    torch.multiprocessing.spawn(test_loop, args=(num_processes, args), nprocs=num_processes)
