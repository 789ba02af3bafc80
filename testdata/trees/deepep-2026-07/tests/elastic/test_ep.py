import argparse
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import deep_ep
from deep_ep.utils.envs import dist_print, init_dist
from deep_ep.utils.gate import get_topk
from deep_ep.utils.testing import bench


def test_dispatch_combine(buffer: deep_ep.ElasticBuffer, args: argparse.Namespace):
    topk_idx = get_topk(args.num_tokens, args.num_experts, 2)
    assert buffer.dispatch(topk_idx).size(0) == args.num_tokens * dist.get_world_size()

    x = torch.ones(args.num_tokens, args.hidden)
    t = bench(lambda: buffer.combine(x))
    dist_print(f' > combine: {x.numel() * 4 / 1e9 / t:.3f} GB/s')


def test_loop(local_rank: int, num_local_ranks: int, args: argparse.Namespace):
    rank, num_ranks, group = init_dist(local_rank, num_local_ranks, seed=args.seed)

    def make_buffer():
        return deep_ep.ElasticBuffer(group, args.num_tokens)

    buffer = make_buffer()
    test_dispatch_combine(buffer, args)
    for _ in range(args.num_rounds):
        if not args.reuse_buffer:
            buffer.destroy()
            buffer = make_buffer()
        test_dispatch_combine(buffer, args)

    # Give the buffer back, then leave the process group
    buffer.destroy()
    dist.destroy_process_group()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='Test expert parallelism')
    parser.add_argument('--num-processes', type=int, default=2)
    parser.add_argument('--num-tokens', type=int, default=24)
    parser.add_argument('--hidden', type=int, default=128)
    parser.add_argument('--num-experts', type=int, default=8)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--num-rounds', type=int, default=0)
    parser.add_argument('--reuse-buffer', action='store_true')
    args = parser.parse_args()

    torch.multiprocessing.spawn(test_loop, args=(args.num_processes, args), nprocs=args.num_processes)
