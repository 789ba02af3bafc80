import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import deep_ep
from utils import bench, init_dist


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


def test_loop(local_rank: int, num_local_ranks: int):
    rank, num_ranks, group = init_dist(local_rank, num_local_ranks)
    num_tokens, hidden = 16, 128

    buffer = deep_ep.Buffer(group, num_rdma_bytes=num_tokens * hidden * 4, low_latency=True)
    test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=1)

    num_rounds = 0
    for seed in range(num_rounds):
        if local_rank == 0:
            print(f'Round {seed}', flush=True)
        expected = test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=seed)
        for _ in range(3):
            assert test_main(num_tokens, hidden, rank, num_ranks, group, buffer, seed=seed) == expected, f'round {seed} differs'


if __name__ == '__main__':
    num_processes = 2
    torch.multiprocessing.spawn(test_loop, args=(num_processes,), nprocs=num_processes)
