// Package setuppy finds setup.py files that build against any PyTorch.
//
// # setuppy/torch-version
//
// A setup.py imports PyTorch and never looks at its version. An extension that is
// built against a PyTorch too old for it fails late, in the compiler or at run
// time, and neither says why. The repair adds a check below the imports:
//
//	if tuple(int(n) for n in torch.__version__.split('.')[:2]) < (2, 0):
//	    raise RuntimeError(f'PyTorch 2.0 or later is needed, not {torch.__version__}')
//
// A requirement such as 'torch>=2.1' counts as a look at the version. Where
// PyTorch is imported on a condition or inside of a function, the file is left
// alone. Only asked for by name, since which version is needed is for the project
// to know: change the number that the repair writes.
package setuppy
