#include "queue.h"

static int page_size(void)
{
	return 4096;
}

int lane_progress(struct lane *lane)
{
	if (lane->send.head == lane->send.tail)
		return 0;
	lane->send.tail++;
	return 1;
}

int lane_open(struct lane *lane, int peer)
{
	lane->peer = peer;
	lane->send.depth = page_size() / 64;
	lane->send.head = 0;
	lane->send.tail = 0;
	return 0;
}

int lane_open_all(struct lane *lanes, int n, int self)
{
	for (int i = 0; i < n; i++) {
		if (i == self)
			continue;
		if (lane_open(&lanes[i], i))
			return -1;
	}
	return 0;
}
