# Counts test cases in what ctest printed, followed by its LastTest.log: cmocka's cases, and one for
# each other program. (That a program was skipped or not run stands in what it printed only.)
# A line "skipped: WHAT" of any of them is one skipped case more, or why the program was skipped.
# Prints the skipped cases by name, then 'N passed, N failed, N skipped'; exit status 1 if any
# failed or none ran.
function close_program() {
  if (!open) return
  delete not_run[name]
  if (name in skipped_programs) result = "skipped"
  if (program_cases) {
    passed += program_passed; failed += program_failed; skipped += program_skipped
    # The program died, timed out, or a sanitizer stopped it after its cases.
    if (result == "failed" && !program_failed) { failed++; failures = failures "  " name "\n" }
  } else if (result == "passed") {
    passed++
  } else if (result == "skipped") {
    skipped++
    if (!parts) skips = skips "  " name "\n"
  } else {
    failed++; failures = failures "  " name "\n"
  }
  if (result != "skipped" || program_cases) skipped += part_count
  skips = skips parts
  open = 0
}
FNR == 1 { close_program() }
/ Test +#[0-9]+: .*\*\*\*(Skipped|Not Run)/ {
  sub(/.* Test +#[0-9]+: /, "")
  if (/\*\*\*Skipped/) skipped_programs[$1] = 1; else not_run[$1] = 1
  next
}
/^[0-9]+\/[0-9]+ Testing: / {
  close_program()
  name = $3; open = 1; result = "failed"; heading = ""
  program_cases = program_passed = program_failed = program_skipped = 0
  parts = ""; part_count = 0
}
!open { next } # what ctest prints of a failed program stands in its log as well
sub(/^skipped: /, "") { parts = parts "  " name ": " $0 "\n"; part_count++; next }
match($0, /\[  PASSED  \] [0-9]+ test/) {
  program_cases = 1; program_passed += substr($0, RSTART + 13)
}
match($0, /\[  SKIPPED \] [0-9]+ test/) {
  program_cases = 1; program_skipped += substr($0, RSTART + 13); heading = "skipped"; next
}
match($0, /\[  FAILED  \] [0-9]+ test/) {
  program_cases = 1; program_failed += substr($0, RSTART + 13); heading = "failed"; next
}
# The names follow their heading.
heading && match($0, /\[  (SKIPPED|FAILED ) \] /) {
  line = "  " name ": " substr($0, RSTART + RLENGTH) "\n"
  if (heading == "skipped") skips = skips line; else failures = failures line
}
/^Test Passed\.$/ { result = "passed" }
/^Test (Failed|timeout)/ { result = "failed" }
END {
  close_program()
  for (each in not_run) { failed++; failures = failures "  " each " (not run)\n" }
  if (skips) printf "skipped:\n%s", skips
  if (failures) printf "failed:\n%s", failures
  printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
  exit failed > 0 || passed == 0
}
