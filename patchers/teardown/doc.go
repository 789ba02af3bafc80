// Package teardown finds process groups that are opened and never destroyed,
// and inserts their teardown.
//
// The question is never whether a file mentions destroy_process_group. It is: in
// which process is the group opened, which code is the last to run there, and is
// a destroy reached on the way? The steps are separate: a byte search chooses
// what is parsed (scan), projects that have nothing to do with each other are told
// apart (parts), names are linked across files (link), each statement is
// reduced to what it does to process groups (events), each function to its
// effect on the group's state (flow), processes get their owners (owners), and
// the repair gets its place and its words (place).
//
// The analysis follows the normal path only and does not know values: where it
// cannot tell, it reports and leaves the file alone.
//
// # teardown/worker
//
// A function that runs in a process of its own (the target of
// torch.multiprocessing.spawn, start_processes, Process(target=...),
// elastic_launch) returns while the process group is open. The process then
// exits with the group, and NCCL warns: "destroy_process_group() was not called
// before program exit, which can leak resources". A teardown in the launcher or
// in pytest's own process cannot help, since the group does not live there.
//
// PyTorch's documentation asks for one destroy per process, near its end. The
// repair adds it behind the last statement of the worker, guarded, since the
// group may have been opened on a condition:
//
//	if dist.is_initialized():
//	    dist.destroy_process_group()
//
// It is never put into a finally clause: when one rank raised, destroying there
// makes the healthy ranks hang.
//
// # teardown/script
//
// A script opens the process group and ends without destroying it, run by
// torchrun or by hand. The repair adds a guarded destroy at the end of the
// function or block that the script runs last.
//
// # teardown/module
//
// A test module opens a process group, in the process of the test runner or in
// workers that it starts, and nothing destroys it. A group left open in the
// runner's process also breaks the next module ("trying to initialize the
// default process group twice!"). The repair adds a module teardown, which
// pytest and unittest call after the last test of the file:
//
//	def teardown_module():
//	    if dist.is_initialized():
//	        dist.destroy_process_group()
//
// Workers are repaired on their own, as teardown/worker: the module's teardown
// runs in another process and cannot reach their groups. A module whose workers
// destroy for themselves needs none.
//
// # teardown/early-return
//
// A return or sys.exit behind the init leaves before the destroy is reached. The
// repair adds the guarded destroy in front of it. Returns in except clauses and
// exits with an error status are left alone.
//
// # teardown/launcher
//
// The launcher destroys a process group that only its workers opened. The call
// does nothing there, or raises; the workers have to destroy. Reported only.
//
// # teardown/rank
//
// Only some ranks destroy the process group, such as "if rank == 0:". Destroying
// is collective: the ranks that do not take part can make the others hang.
// Reported only, since which condition was meant cannot be told.
//
// # teardown/unparsable
//
// The file names process groups, but it is not valid Python, or it is newer than
// the grammar of this tool. It is left alone.
package teardown
