// Package advice finds calls of DeepEP that make a program wait for more than it
// has to. Nothing is wrong with such a call, so it is only looked for if asked by
// name, and it is left to a person: whether the program has anything to do
// meanwhile, only its author knows.
//
// It looks at names that are a deep_ep.Buffer for sure: bound to deep_ep.Buffer(...),
// or annotated with it, and to nothing else.
//
// # advice/async
//
// A dispatch or combine of a deep_ep.Buffer is called without async_finish=True.
// The stream at hand then waits until the communication is done, and nothing that
// is computed can overlap with it. With async_finish=True the stream goes on at
// once, and the event that the call returns says when the result may be used:
//
//	out, _, event = buffer.combine(x, handle, async_finish=True)
//	y = shared_expert(x)
//	event.current_stream_wait()
//
// The wait is needed: without it the result is read before it is there. A
// low-latency call with return_recv_hook is left alone, since the hook overlaps in
// another way and the two exclude each other. So is a call whose arguments are not
// to be seen, as in dispatch(**args). Reported only.
//
// # advice/handle
//
// A dispatch computes the layout of its tokens again, though an earlier dispatch
// of the same function returned a handle for the same layout. With the handle,
// DeepEP computes no layout, and the host does not wait for the GPU to count what
// will be received:
//
//	x, idx, weights, counts, handle, event = buffer.dispatch(a, topk_idx=topk_idx, ...)
//	y, _, _, _, _, event = buffer.dispatch(b, handle=handle)
//
// A dispatch with a handle takes no topk_idx and no topk_weights and returns none;
// those of the first are still right. The layout is the same if is_token_in_rank
// is, or if get_dispatch_layout made both from the same topk_idx. Where a name was
// given a new value in between, weights or config differ, or the handle is known
// on one branch only, nothing is said. Reported only.
package advice
