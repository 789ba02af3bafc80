import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import deep_ep
from utils import bench, init_dist

# The low-latency checks run on the same buffer
import test_low_latency


def test_main(num_sms: int, local_rank: int, num_ranks: int, rank: int, buffer: deep_ep.Buffer, group: dist.ProcessGroup):
    x = torch.full((num_sms, 128), float(rank))
    assert buffer.dispatch(x).size(0) == num_sms * num_ranks
    assert torch.equal(buffer.combine(x), torch.full_like(x, sum(range(num_ranks))))

    # Tune dispatch performance
    best_time, best_chunk_size = 1e10, 0
    for chunk_size in (4, 8):
        t = bench(lambda: buffer.dispatch(x[:chunk_size])) / chunk_size
        if t < best_time:
            best_time, best_chunk_size = t, chunk_size
    dist.barrier(group)
    if local_rank == 0:
        print(f'[tuning] Best dispatch (FP32): SMs {num_sms}, NVL chunk {best_chunk_size}, '
              f'{num_ranks * 128 * 4 / 1e9 / best_time:.2f} GB/s (NVL)', flush=True)


def test_loop(local_rank: int, num_local_ranks: int):
    rank, num_ranks, group = init_dist(local_rank, num_local_ranks)
    low_latency, num_rdma_bytes = False, 0
    if low_latency:
        ll_tokens, ll_hidden = 16, 128
        num_rdma_bytes = deep_ep.Buffer.rdma_size(ll_tokens, ll_hidden, num_ranks)

    buffer = deep_ep.Buffer(group, int(1e9), num_rdma_bytes, low_latency=low_latency)
    torch.manual_seed(rank)

    for num_sms in (24, ):
        test_main(num_sms, local_rank, num_ranks, rank, buffer, group)
        if local_rank == 0:
            print('', flush=True)

    # The low-latency checks come last: they leave the buffer dirty
    if low_latency:
        test_low_latency.test_main(ll_tokens, ll_hidden, rank, num_ranks, group, buffer, seed=1)


if __name__ == '__main__':
    num_processes = 2
    torch.multiprocessing.spawn(test_loop, args=(num_processes, ), nprocs=num_processes)
