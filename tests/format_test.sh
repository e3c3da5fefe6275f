#!/bin/sh
# Every source file is as clang-format 14 writes it; other versions write a little otherwise, so
# with those the test is skipped.
set -u
tool=
for each in clang-format-14 clang-format; do
  if "$each" --version 2>/dev/null | grep -q 'version 14\.'; then tool=$each && break; fi
done
[ -n "$tool" ] || { echo "skipped: needs clang-format 14"; exit 77; }

# It can fail: this line has blanks too many.
if printf 'int  a  ;\n' | "$tool" --dry-run -Werror --assume-filename=src/base/a.c 2>/dev/null; then
  echo "clang-format found nothing wrong with a badly written line"
  exit 1
fi
folders=
for folder in include src tests bench examples; do
  [ ! -d "$folder" ] || folders="$folders $folder"
done
# shellcheck disable=SC2086
find $folders -name '*.[ch]' -print0 | xargs -0 "$tool" --dry-run -Werror ||
  { echo "run: make format"; exit 1; }
