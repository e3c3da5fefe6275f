#!/bin/sh
# Samples of commands in documents: each is run, and what it prints is written where the old lines
# stand, or compared with them.
#
#   tools/refresh_samples.sh LOCKSTEP write|check [FILE[:WORD]...]     # WORD: commands that have it
#
# A sample is a line "    $ lockstep plan|simulate|check|machines|models ..." and the indented lines
# below it. A line "..." of it stands for lines left out: as many as stand before the first are made
# anew, as many as stand behind the last, and between two those that differ in numbers alone. A sample
# "$ cat FILE" is the file that commands below it read. Commands run where the repository's own files
# are, with no catalog of the user's.
#
# What is of the machine that this runs on is left out: plan and simulate without --on, or of `here`;
# lines that say how long compiling and checking took (" in N s"); and, without --on, memory with the
# workspace that kernels of this processor's instruction set are given. docs/atlas.md is written by
# bench/atlas.py. Exit status 1: samples differ, each named with its line.
set -eu
lockstep=$(realpath "${1:?"expected the lockstep command"}")
mode=${2:-check}
[ $# -lt 2 ] || shift
shift
[ $# -gt 0 ] || set -- README.md $(ls docs/*.md | grep -v atlas.md)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/run" "$work/home"
ln -s "$lockstep" "$work/bin/lockstep"
for each in *; do ln -s "$PWD/$each" "$work/run/$each"; done
failed=0
for each in "$@"; do
  file=${each%%:*}
  word=${each#"$file"}
  HOME="$work/home" XDG_CONFIG_HOME="$work/home" PATH="$work/bin:$PATH" \
    awk -v work="$work" -v mode="$mode" -v word="${word#:}" '
    function is_sample(text) { return text ~ /^    / || (text == "" && lines[at + 1] ~ /^    [^$]/) }
    function is_local(text) {
      return text ~ / in [0-9.]+ s/ || (command !~ / --on / && text ~ / of it workspace of kernels/)
    }
    function masked(text) { gsub(/[0-9.]+/, "#", text); gsub(/ +/, " ", text); return text }
    function newer(old, new) {
      return is_local(old) && masked(old) == masked(new) ? old : new
    }
    function is_wanted(command) {
      if (index(command, word) == 0 || command !~ /^lockstep (plan|simulate|check|machines|models)/)
        return 0
      if (command ~ /(^| )here( |$)/) return 0
      return command !~ /^lockstep (plan|simulate)/ || command ~ / --on /
    }
    # What the command prints, indented: said[1 .. count]. Lines of its progress come first, the one
    # that says why it failed comes last; which files it wrote is left out.
    function take(file,   text) {
      while ((getline text <(work file)) > 0)
        if (text !~ /^written: /) said[++count] = text == "" ? "" : "    " text
      close(work file)
    }
    function run(command,   status, why) {
      print command >(work "/command")
      close(work "/command")
      status = system("cd " work "/run && sh ../command >../said 2>../errors </dev/null")
      count = 0
      take("/errors")
      if (status && count) why = said[count--]
      take("/said")
      if (why != "") said[++count] = why
    }
    # Where lines [first, last] of the sample are in what was said, from a line on; 0: nowhere.
    function locate(first, last, from,   begin, i) {
      for (begin = from; begin + last - first <= count; begin++) {
        for (i = first; i <= last; i++)
          if (masked(row[i]) != masked(said[begin + i - first])) break
        if (i > last) return begin
      }
      return last == rows ? count - (last - first) : 0
    }
    function complain(what) { print file ":" line ": " what ": " command >"/dev/stderr"; bad = 1 }
    # row[1 .. rows] made anew from what was said.
    function renew(   i, first, begin, from, has_gap) {
      for (i = 1; i <= rows; i++) has_gap += row[i] == "    ..."
      if (!has_gap) {
        for (i = 1; i <= count; i++) row[i] = newer(row[i], said[i])
        rows = count
        return
      }
      for (i = from = 1; i <= rows; i++) {
        if (row[i] == "    ...") continue
        for (first = i; i < rows && row[i + 1] != "    ...";) i++
        begin = first == 1 ? 1 : locate(first, i, from)
        if (begin < from || begin + i - first > count) {
          complain("the lines from \"" row[first] "\" on are no longer there")
          return
        }
        for (from = begin; first <= i; first++) row[first] = newer(row[first], said[from++])
      }
    }
    { lines[++total] = $0 }
    END {
      file = FILENAME
      for (at = 1; at <= total; at++) {
        print lines[at] >(work "/new")
        if (lines[at] !~ /^    \$ (lockstep|cat) /) continue
        line = at
        command = substr(lines[at], 7)
        rows = 0
        for (at++; at <= total && lines[at] !~ /^    \$ / && is_sample(lines[at]); at++)
          old[++rows] = row[rows] = lines[at]
        at--
        if (command ~ /^cat /) {
          path = work "/run/" substr(command, 5)
          system("rm -f " path)
          for (i = 1; i <= rows; i++) print substr(row[i], 5) >path
          close(path)
        }
        were = rows
        if (is_wanted(command)) {
          run(command)
          renew()
          for (i = 1; i <= rows && i <= were && row[i] == old[i];) i++
          if (i <= rows || i <= were) {
            checked = mode == "check" ? "stale" : "made anew"
            print file ":" line + i ": " checked ": " command >"/dev/stderr"
            if (mode == "check") {
              print "  stands: " (i <= were ? old[i] : "") >"/dev/stderr"
              print "  is now: " (i <= rows ? row[i] : "") >"/dev/stderr"
              bad = 1
            }
          }
        }
        for (i = 1; i <= rows; i++) print row[i] >(work "/new")
      }
      exit bad
    }' "$file" || failed=1
  [ "$mode" = check ] || cp "$work/new" "$file"
  rm -f "$work/new"
done
exit $failed
