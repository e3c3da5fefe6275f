#!/bin/sh
# What the documents name is there: links to files of the tree, and files of it in `backquotes`.
set -eu
failed=0
named=0

# look DOCUMENT FILE FOLDER...: the file is in one of the folders.
look() {
  document=$1 file=$2
  shift 2
  named=$((named + 1))
  for folder in "$@"; do
    [ -e "$folder/$file" ] && return
  done
  echo "document_links_test: $document names $file, which is not there" >&2
  failed=1
}

for document in *.md docs/*.md bench/*.md; do
  for link in $(grep -o '](\([^)#]*\)' "$document" | sed 's/^](//' | grep -v '://'); do
    look "$document" "$link" "$(dirname "$document")"
  done
  for file in $(grep -oE '`[a-z_0-9]+(/[a-z_0-9.-]+)+\.[a-z]+`' "$document" | tr -d '`'); do
    case $file in
      build/* | runs/* | path/* | */name.c | */name_*) ;;
      *.c | *.h | *.sh | *.py | *.txt | *.md | *.csv) look "$document" "$file" . src ;;
    esac
  done
done
[ $named -gt 60 ] || { echo "document_links_test: only $named names were found" >&2; failed=1; }
[ $failed = 0 ] && echo "document_links_test: $named names are of files that are there"
exit $failed
