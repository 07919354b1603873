/**
 * A program for a sandbox that hides its files from a walk of the workspace. It moves a directory from where the walk
 * has not been yet to where it has already been, and back after the walk.
 *
 * `inotify(7)` reports the progress of the walk: a watch is on the inode of a directory, which the host reads too. A
 * walk visits directories in the reverse order of their listing.
 */

/**
 * Prepares `p` in the workspace, prints `ready`, and moves `big` between two directories of `p` until it is killed. The
 * link `big` in the workspace leads to its first place.
 */
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
