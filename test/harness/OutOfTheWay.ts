/**
 * What keeps its files out of the way of whoever walks a workspace: a program for inside, which moves a directory from
 * where nobody has looked yet to where somebody has, and back when the walk is over.
 *
 * `inotify(7)` tells it of the walk: a watch of a directory is one of its inode, which the host looks at too. A walk
 * takes directories in the order of their listing, the last of them first.
 */

/** Prepares `p` in the workspace, says `ready`, and moves `p/*` as long as it lives. Its first file goes to `big`. */
export const program = String.raw`
use strict; use POSIX ();
mkdir "p" or die; mkdir sprintf("p/%04d", $_) or die for 1 .. 600;
opendir my $p, "p" or die; my @listed = grep { /^\d/ } readdir $p; closedir $p;
my ($first, $last) = ("p/$listed[-1]", "p/$listed[0]");
mkdir "$last/big" or die; symlink "$last/big", "big";
my ($init, $add) = (POSIX::uname())[4] eq "x86_64" ? (294, 254) : (26, 27);
my $queue = syscall($init, 0); die if $queue < 0;
my $closed = 0x10;
my $watch_first = syscall($add, $queue, "$first", $closed);
my $watch_last = syscall($add, $queue, "$last", $closed);
open my $events, "<&=", $queue or die;
$| = 1; print "ready\n";
while (sysread $events, my $bytes, 4096) {
  while (length $bytes) {
    my ($watch, $mask, $cookie, $length) = unpack "iIII", $bytes;
    substr($bytes, 0, 16 + $length) = "";
    rename "$last/big", "$first/big" if $watch == $watch_first;
    rename "$first/big", "$last/big" if $watch == $watch_last;
  }
}
`
