package ncclog

import "bytes"

// A Kind is what a message is about.
type Kind string

const (
	NotDestroyed    Kind = "group-not-destroyed"
	ProxyClosed     Kind = "proxy-closed"
	StoreClosed     Kind = "store-closed"
	PeerClosed      Kind = "peer-closed"
	DriverShutdown  Kind = "cuda-driver-shutdown"
	LeakedObjects   Kind = "leaked-objects"
	Terminated      Kind = "terminated-by-launcher"
	WatchdogTimeout Kind = "watchdog-timeout"
	NCCLError       Kind = "nccl-error"
	ProxyFailed     Kind = "proxy-failed"
	ConnectFailed   Kind = "connect-failed"
	ForeignPeer     Kind = "foreign-connection"
	InfiniBand      Kind = "infiniband"
	SharedMemory    Kind = "shared-memory-full"
	Descriptors     Kind = "too-many-open-files"
	CUDAError       Kind = "cuda-error"
	OutOfMemory     Kind = "gpu-out-of-memory"
	StoreTimeout    Kind = "store-timeout"
	PortInUse       Kind = "port-in-use"
	NVSHMEMInit     Kind = "nvshmem-init"
	NVSHMEMDevice   Kind = "nvshmem-device"
	KernelTimeout   Kind = "kernel-timeout"
	Aborted         Kind = "aborted"
	ChildFailed     Kind = "worker-failed"
	InitTwice       Kind = "init-twice"
	DestroyTwice    Kind = "destroy-twice"
	Exception       Kind = "exception"
	BarrierDevice   Kind = "barrier-device"
	Threads         Kind = "thread-count"
	Unknown         Kind = "unknown"
)

// A class says how a kind gets its meaning.
type class int

const (
	isNoise  class = iota // always noise of the exit
	isCause               // always trouble, and explains what follows
	isEither              // noise, a consequence or unclear: that depends on the place
	isAdvice
	isUnknown
)

// A rule recognizes one wording: the line holds all of the texts.
type rule struct {
	kind   Kind
	class  class
	source Source // "" leaves it to the line's own format
	texts  []string
}

// rules are tried in order. Those that share a text with another come first where
// they ask for more.
var rules = []rule{
	// PyTorch 2.6 and later; 2.4 and 2.5; 2.3 and the nightlies of 2.4.
	{NotDestroyed, isNoise, C10D, []string{"destroy_process_group() was not called before program exit"}},
	{NotDestroyed, isNoise, C10D, []string{"process group has NOT been destroyed before"}},

	// What fills up explains the failures that are reported with it.
	{SharedMemory, isCause, "", []string{"/dev/shm", "No space left on device"}},
	{SharedMemory, isCause, "", []string{"/dev/shm", "failed to extend"}},
	{SharedMemory, isCause, "", []string{"Accept failed No space left on device"}},
	{SharedMemory, isCause, "", []string{"unable to allocate shared memory"}},
	{SharedMemory, isCause, Python, []string{"insufficient shared memory (shm)"}},
	{Descriptors, isCause, "", []string{"Too many open files"}},

	// NCCL's proxy: closing down, or at work.
	{ProxyClosed, isEither, NCCL, []string{"[Service thread] Accept failed"}},
	{ProxyClosed, isEither, NCCL, []string{"[Service thread] Could not receive type from localRank"}},
	{ProxyClosed, isEither, NCCL, []string{"Failed to execute operation Close"}},
	{ProxyClosed, isEither, NCCL, []string{"Failed to execute operation Stop"}},
	{ProxyClosed, isEither, NCCL, []string{"[Service thread] Error encountered progressing operation=Close"}},
	{ProxyFailed, isCause, NCCL, []string{"Failed to execute operation"}},
	{ProxyFailed, isCause, NCCL, []string{"[Service thread] Error encountered progressing operation"}},
	{InfiniBand, isCause, NCCL, []string{"NET/IB", "Got completion"}},
	{InfiniBand, isCause, NCCL, []string{"NET/IB", "Got async"}},
	{InfiniBand, isCause, NCCL, []string{"Call to ibv_", "failed"}},
	{ForeignPeer, isCause, NCCL, []string{"socketFinalizeAccept: wrong"}},
	{ConnectFailed, isCause, NCCL, []string{"NCCL WARN", "onnect to", "failed"}},
	{ConnectFailed, isCause, NCCL, []string{"NCCL WARN", "onnect to", "returned"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "onnection closed by remote peer"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "Call to recv from"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "Call to send to"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "Socket recv failed while polling"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "Connection reset by peer"}},
	{PeerClosed, isEither, NCCL, []string{"NCCL WARN", "Broken pipe"}},
	{PeerClosed, isEither, C10D, []string{"gloo/transport/", "Connection closed by peer"}},
	{PeerClosed, isEither, C10D, []string{"gloo/transport/", "Connection reset by peer"}},
	{DriverShutdown, isEither, CUDA, []string{"driver shutting down"}},

	// PyTorch's store and watchdog.
	{StoreClosed, isEither, TCPStore, []string{"[c10d]", "failed on SocketImpl"}},
	{StoreClosed, isEither, TCPStore, []string{`Failed to check the "should dump" flag on TCPStore`}},
	{StoreClosed, isEither, TCPStore, []string{"Failed to get exception dump flag from the global store"}},
	{WatchdogTimeout, isCause, C10D, []string{"Watchdog caught collective operation timeout"}},
	{WatchdogTimeout, isCause, C10D, []string{"watchdog got stuck for"}},
	{WatchdogTimeout, isCause, C10D, []string{"detected by watchdog"}},
	{WatchdogTimeout, isCause, C10D, []string{"detected a collective timeout"}},
	{WatchdogTimeout, isCause, C10D, []string{"watchdog timeout"}},
	{WatchdogTimeout, isCause, C10D, []string{"Some NCCL operations have failed or timed out"}},
	{WatchdogTimeout, isCause, C10D, []string{"watchdog thread terminated with exception"}},
	{WatchdogTimeout, isCause, C10D, []string{"we are taking the entire process down"}},
	{StoreTimeout, isCause, TCPStore, []string{"client socket has timed out"}},
	{StoreTimeout, isCause, TCPStore, []string{"client socket has failed to connect"}},
	{StoreTimeout, isCause, TCPStore, []string{"TCP client failed to connect"}},
	{StoreTimeout, isCause, TCPStore, []string{"Timed out after", "waiting for clients"}},
	{StoreTimeout, isCause, TCPStore, []string{"wait timeout after"}},
	{StoreTimeout, isCause, TCPStore, []string{"Socket Timeout"}},
	{PortInUse, isCause, TCPStore, []string{"EADDRINUSE"}},
	{PortInUse, isCause, TCPStore, []string{"ddress already in use"}},
	{BarrierDevice, isAdvice, C10D, []string{"perform barrier as devices used by this process are currently unknown"}},
	{BarrierDevice, isAdvice, C10D, []string{"barrier(): using the device under current context"}},
	{BarrierDevice, isAdvice, C10D, []string{"Guessing device ID based on global rank"}},

	// NVSHMEM and DeepEP's kernels.
	{NVSHMEMDevice, isAdvice, NVSHMEM, []string{"WARN: device ", "Skipping"}},
	{NVSHMEMDevice, isAdvice, NVSHMEM, []string{"init failed for transport"}},
	{NVSHMEMInit, isCause, NVSHMEM, []string{"nvshmem initialization failed"}},
	{NVSHMEMInit, isCause, NVSHMEM, []string{"Unable to initialize any transports"}},
	{NVSHMEMInit, isCause, NVSHMEM, []string{"NVSHMEM API called before NVSHMEM initialization"}},
	{NVSHMEMInit, isCause, NVSHMEM, []string{"aborting due to error in nvshmem"}},
	{NVSHMEMInit, isCause, NVSHMEM, []string{": non-zero status: "}},
	{KernelTimeout, isCause, DeepEP, []string{"DeepEP ", "timeout"}},

	// CUDA.
	{OutOfMemory, isCause, CUDA, []string{"CUDA out of memory"}},
	{OutOfMemory, isCause, CUDA, []string{"CUDA error: out of memory"}},
	{OutOfMemory, isCause, CUDA, []string{"Cuda failure", "out of memory"}},
	{CUDAError, isCause, CUDA, []string{"CUDA error"}},
	{CUDAError, isCause, CUDA, []string{"CUDA driver error"}},
	{CUDAError, isCause, CUDA, []string{"Cuda failure"}},
	{NCCLError, isCause, C10D, []string{"NCCL error"}},
	{NCCLError, isCause, C10D, []string{"ncclSystemError"}},
	{NCCLError, isCause, C10D, []string{"ncclRemoteError"}},
	{NCCLError, isCause, C10D, []string{"ncclInternalError"}},
	{NCCLError, isCause, C10D, []string{"ncclUnhandledCudaError"}},
	{NCCLError, isCause, C10D, []string{"ncclInvalidUsage"}},

	// Python and whatever starts the processes.
	{DestroyTwice, isCause, Python, []string{"AssertionError: Process group cannot be None"}},
	{DestroyTwice, isCause, Python, []string{"AssertionError: Invalid process group specified"}},
	{InitTwice, isCause, Python, []string{"trying to initialize the default process group twice"}},
	{LeakedObjects, isNoise, Python, []string{"resource_tracker: There appear to be", "leaked"}},
	{Terminated, isEither, Runner, []string{"closing signal SIG"}},
	{Terminated, isEither, Runner, []string{"Terminating process", "via signal SIGTERM"}},
	{ChildFailed, isCause, Runner, []string{"ChildFailedError"}},
	{ChildFailed, isCause, Runner, []string{"ProcessExitedException"}},
	{ChildFailed, isCause, Runner, []string{"ProcessRaisedException"}},
	{ChildFailed, isCause, Runner, []string{"failed (exitcode: "}},
	{Aborted, isCause, Runner, []string{"terminate called after throwing"}},
	{Aborted, isCause, Runner, []string{"terminate called without an active exception"}},
	{Aborted, isCause, Runner, []string{"(core dumped)"}},
	{Aborted, isCause, Runner, []string{"Fatal Python error"}},
	{Aborted, isCause, Runner, []string{"Caught signal 11"}},
	{Aborted, isCause, Runner, []string{"Segmentation fault"}},
	{Threads, isAdvice, Runner, []string{"Setting OMP_NUM_THREADS environment variable"}},
}

// classify returns the first rule that the line fits, or nil.
func classify(line []byte) *rule {
next:
	for i := range rules {
		for _, text := range rules[i].texts {
			if !contains(line, text) {
				continue next
			}
		}
		return &rules[i]
	}
	return nil
}

// contains is bytes.Contains for a string, without making a copy of it.
func contains(b []byte, s string) bool {
	return bytes.Contains(b, []byte(s))
}
