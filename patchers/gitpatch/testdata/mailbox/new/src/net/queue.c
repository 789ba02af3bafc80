#include "queue.h"
#include <string.h>

static int page_size(void)
{
	return 4096;
}

#ifdef QUEUE_TRACE
int lane_progress(struct lane *lane)
{
	if (lane->send.head == lane->send.tail)
		return 0;
	lane->send.tail++;
	return 1;
}
#else
int lane_progress(struct lane *lane)
{
	return -1;
}
#endif

int lane_open(struct lane *lane, int peer)
{
	lane->peer = peer;
	lane->send.depth = page_size() / 64;
	lane->send.head = 0;
	lane->send.tail = 0;
	lane->send.done = 0;
	lane->recv = lane->send;
	return 0;
}

int lane_open_all(struct lane *lanes, int n, int self)
{
	for (int i = 0; i < n; i++) {
		int peer = (self + 1 + i) % n;

		if (peer == self)
			continue;
		if (lane_open(&lanes[peer], peer))
			return -1;
	}
	return 0;
}
