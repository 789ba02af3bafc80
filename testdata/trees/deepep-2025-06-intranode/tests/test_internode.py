import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import deep_ep
from utils import bench, init_dist

# The low-latency checks run on the same buffer
import test_low_latency


def test_main(num_sms: int, local_rank: int, num_local_ranks: int, num_ranks: int, num_nodes: int, rank: int,
              buffer: deep_ep.Buffer, group: dist.ProcessGroup):
    assert num_local_ranks * num_nodes == num_ranks == dist.get_world_size(group)
    x = torch.full((num_sms, 128), float(rank))
    assert torch.equal(buffer.dispatch(x)[::num_sms, 0], torch.arange(num_ranks).float())

    t = bench(lambda: buffer.dispatch(x))
    if local_rank == 0:
        print(f'[tuning] Best dispatch (FP32): SMs {num_sms}, '
              f'{num_ranks * x.numel() * 4 / 1e9 / t:.2f} GB/s (RDMA)', flush=True)


def test_loop(local_rank: int, num_local_ranks: int):
    num_nodes = int(os.getenv('WORLD_SIZE', 1))
    rank, num_ranks, group = init_dist(local_rank, num_local_ranks)
    low_latency = True
    if low_latency:
        ll_tokens, ll_hidden = 16, 128

    buffer = deep_ep.Buffer(group, int(1e9), int(1e9), low_latency=low_latency)
    torch.manual_seed(rank)

    for num_sms in (24, ):
        test_main(num_sms, local_rank, num_local_ranks, num_ranks, num_nodes, rank, buffer, group)
        if local_rank == 0:
            print('', flush=True)

    # The low-latency checks come last: they leave the buffer dirty
    if low_latency:
        test_low_latency.test_main(ll_tokens, ll_hidden, rank, num_ranks, group, buffer, seed=1)


if __name__ == '__main__':
    num_processes = 2
    torch.multiprocessing.spawn(test_loop, args=(num_processes, ), nprocs=num_processes)
