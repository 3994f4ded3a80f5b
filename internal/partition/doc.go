// Package partition tests a cluster whose machines are really cut off from each other:
// network namespaces with addresses of their own, on a bridge, in which real fenced
// processes run. What is cut off hears nothing any more, and is told nothing of it. It
// has no code of its own.
//
// The tests need Linux, root, ip (Debian's iproute2) and curl, and are skipped with one line
// elsewhere.
package partition
