#include "cluster/machine.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static ls_arena *arena;
static ls_error error;
static char root[64];

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(root, sizeof root, "/tmp/machine_test.XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return ls_directory_remove(root, &error) == LS_OK ? 0 : -1;
}

/* A file of the recorded machine. */
static void put(const char *path, const char *text) {
  char *full = ls_arena_printf(arena, "%s%s", root, path);
  char *slash = strrchr(full, '/');
  *slash = 0;
  assert_int_equal(ls_directory_make(full, &error), LS_OK);
  *slash = '/';
  assert_int_equal(ls_file_write(full, text, strlen(text), &error), LS_OK);
}

static void put_siblings(int thread, const char *list) {
  put(ls_arena_printf(arena, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", thread),
      list);
}

static void nothing_known_is_one_thread_each(void **state) {
  (void)state;
  const ls_machine machine = ls_machine_probe_at(root, 6, NULL);
  assert_int_equal(machine.threads, 6);
  assert_int_equal(machine.cores, 6);
  assert_int_equal(machine.memory_bytes, 0);
  assert_int_equal(ls_machine_probe_at(root, 0, NULL).cores, 1);
}

/* Threads 1 and 70 of a host, each bound to by another process. */
static void a_set_of_threads_is_held_to_the_quota(void **state) {
  (void)state;
  const ls_thread_set set = {{[0] = 2, [1] = 1 << 6}};
  assert_int_equal(ls_machine_threads_of(root, &set), 2);
  put("/proc/self/cgroup", "0::/job\n");
  put("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  assert_int_equal(ls_machine_threads_of(root, &set), 1);
  const ls_thread_set own = ls_machine_allowed();
  assert_true(ls_machine_threads_of("", &own) >= ls_machine_probe().threads);
}

/* Threads 0 to 3 are of four cores, 4 to 7 their second ones; 5 is not allowed. */
static void parts_are_whole_cores(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) put_siblings(i, ls_arena_printf(arena, "%d,%d\n", i % 4, i % 4 + 4));
  const ls_thread_set set = {{0xdf}};
  assert_int_equal(ls_machine_part(root, &set, 0, 2).words[0], 1 << 0 | 1 << 4 | 1 << 1);
  assert_int_equal(ls_machine_part(root, &set, 1, 2).words[0], 1 << 2 | 1 << 6 | 1 << 3 | 1 << 7);
  uint64_t all = 0;
  for (int part = 0; part < 3; part++) {
    const uint64_t own = ls_machine_part(root, &set, part, 3).words[0];
    assert_true(own && !(own & all));
    all |= own;
  }
  assert_int_equal(all, 0xdf);
  assert_int_equal(ls_machine_part(root, &set, 0, 5).words[0], 0);
}

static void threads_of_one_core_count_once(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) put_siblings(i, ls_arena_printf(arena, "%d,%d\n", i % 4, i % 4 + 4));
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 4);
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).threads, 8);
  assert_int_equal(ls_machine_probe_at(root, 5, NULL).cores, 4); /* 0 to 3, and 4 is 0's */
  for (int i = 0; i < 8; i++) {
    put_siblings(i, ls_arena_printf(arena, "%d-%d\n", i / 2 * 2, i / 2 * 2 + 1));
  }
  assert_int_equal(ls_machine_probe_at(root, 3, NULL).cores, 2);
}

static void cgroup_v2_limits_are_the_least_on_the_way_up(void **state) {
  (void)state;
  put("/proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\n");
  put("/proc/self/cgroup", "0::/user.slice/job\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).memory_bytes, 16000 * 1024);
  put("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 8);
  put("/sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
  put("/sys/fs/cgroup/user.slice/memory.max", "9000000\n");
  put("/sys/fs/cgroup/user.slice/memory.current", "7000000\n");
  put("/sys/fs/cgroup/user.slice/memory.stat", "anon 6000000\ninactive_file 500000\nx 1\n");
  assert_int_equal(ls_machine_memory_there(root).bytes, 2500000);
  assert_string_equal(ls_machine_memory_there(root).what, "memory that is left of the cgroup");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 3);
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).memory_bytes, 9000000);
  put("/sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 1);
}

static void cgroup_v1_is_read_too_and_a_container_sees_its_root_only(void **state) {
  (void)state;
  put("/proc/meminfo", "MemTotal:       16000 kB\n");
  put("/proc/self/cgroup",
      "12:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 8);
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).memory_bytes, 16000 * 1024);
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).cores, 2);
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).memory_bytes, 8192);
  put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "4096\n");
  assert_int_equal(ls_machine_probe_at(root, 8, NULL).memory_bytes, 4096);
}

static void slurm_limits_cores(void **state) {
  (void)state;
  assert_int_equal(ls_machine_probe_at(root, 8, "3").cores, 3);
  assert_int_equal(ls_machine_probe_at(root, 8, "30").cores, 8);
  assert_int_equal(ls_machine_probe_at(root, 8, "").cores, 8);
  assert_int_equal(ls_machine_probe_at(root, 8, "many").cores, 8);
}

static void broken_files_are_taken_for_missing_ones(void **state) {
  (void)state;
  put("/proc/meminfo", "nothing\n");
  put("/proc/self/cgroup", "no colons\n:\n::\n0::/a\nx:y");
  put("/sys/fs/cgroup/a/cpu.max", "1 0\n");
  put("/sys/fs/cgroup/a/memory.max", "\n");
  put_siblings(0, "a-b,,\n");
  const ls_machine machine = ls_machine_probe_at(root, 4, NULL);
  assert_int_equal(machine.cores, 4);
  assert_int_equal(machine.memory_bytes, 0);
}

static void this_machine_has_what_its_affinity_allows(void **state) {
  (void)state;
  cpu_set_t before, one;
  unsetenv("SLURM_CPUS_PER_TASK");
  const ls_machine machine = ls_machine_probe();
  assert_true(machine.cores >= 1 && machine.cores <= machine.threads);
  assert_true(machine.memory_bytes > 1 << 20);
  assert_int_equal(ls_machine_cores(), machine.cores);
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(ls_machine_cores(), 1);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void clear_launchers(void) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMI_SIZE");
  unsetenv("SLURM_NTASKS");
  unsetenv("WORLD_SIZE");
}

static void launchers_are_known_by_their_variables(void **state) {
  (void)state;
  static const char *const variables[] = {"WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE",
                                          "OMPI_COMM_WORLD_SIZE"};
  clear_launchers();
  assert_int_equal(ls_launcher_detect().tasks, 1);
  assert_null(ls_launcher_detect().variable);
  for (int i = 0; i < 4; i++) { /* the later ones are nearer to the process */
    setenv(variables[i], (const char *[]){"3", "4", "5", "6"}[i], 1);
    assert_int_equal(ls_launcher_detect().tasks, 3 + i);
    assert_string_equal(ls_launcher_detect().variable, variables[i]);
  }
  setenv("OMPI_COMM_WORLD_SIZE", "many", 1);
  assert_int_equal(ls_launcher_detect().tasks, 5);
  setenv("PMI_SIZE", "0", 1);
  assert_int_equal(ls_launcher_detect().tasks, 4);
  clear_launchers();
}

static void the_rank_is_said_beside_the_tasks(void **state) {
  (void)state;
  clear_launchers();
  setenv("PMI_RANK", "1", 1);
  ls_launcher launcher = ls_launcher_detect();
  assert_int_equal(ls_launcher_rank(&launcher), 0); /* nothing was launched */
  setenv("SLURM_NTASKS", "4", 1);
  setenv("SLURM_PROCID", "3", 1);
  launcher = ls_launcher_detect();
  assert_int_equal(ls_launcher_rank(&launcher), 3);
  setenv("PMI_SIZE", "2", 1);
  launcher = ls_launcher_detect();
  assert_int_equal(ls_launcher_rank(&launcher), 1);
  setenv("PMI_RANK", "2", 1);
  assert_int_equal(ls_launcher_rank(&launcher), 0);
  unsetenv("PMI_RANK");
  assert_int_equal(ls_launcher_rank(&launcher), 0);
  unsetenv("SLURM_PROCID");
  clear_launchers();
}

static void more_tasks_than_mpi_joined_are_refused(void **state) {
  (void)state;
  const ls_launcher eight = {8, "SLURM_NTASKS"};
  assert_int_equal(ls_launcher_check(&eight, 8, &error), LS_OK);
  assert_int_equal(ls_launcher_check(&(ls_launcher){1, NULL}, 1, &error), LS_OK);
  assert_int_equal(ls_launcher_check(&eight, 1, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "SLURM_NTASKS is 8, but MPI joined 1 process: start with \"mpirun -n 8 "
                      "lockstep ...\" or \"srun --mpi=pmix\" and a build that found MPI; for one "
                      "process unset SLURM_NTASKS");
}

static void processors_are_named(void **state) {
  (void)state;
  char text[LS_PROCESSOR_BYTES];
  ls_machine_processor(root, text);
  assert_string_equal(text, "unknown");
  put("/proc/cpuinfo",
      "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
      "model name\t: AMD EPYC 9R14\nstepping\t: 1\n\nprocessor\t: 1\nmodel\t\t: 99\n");
  ls_machine_processor(root, text);
  assert_string_equal(text, "AMD EPYC 9R14, family 25, model 17, stepping 1");
  put("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  ls_machine_processor(root, text);
  assert_string_equal(text, "ARM implementer 0x41, part 0xd40");
}

static void the_largest_cache_counts(void **state) {
  (void)state;
  assert_int_equal(ls_machine_cache_bytes(root), 0);
  put("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
  put("/sys/devices/system/cpu/cpu0/cache/index3/size", "260M\n");
  put("/sys/devices/system/cpu/cpu0/cache/index2/size", "2048K\n");
  assert_int_equal(ls_machine_cache_bytes(root), 260 << 20);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(nothing_known_is_one_thread_each),
      CASE(parts_are_whole_cores),
      CASE(threads_of_one_core_count_once),
      CASE(a_set_of_threads_is_held_to_the_quota),
      CASE(cgroup_v2_limits_are_the_least_on_the_way_up),
      CASE(cgroup_v1_is_read_too_and_a_container_sees_its_root_only),
      CASE(slurm_limits_cores),
      CASE(broken_files_are_taken_for_missing_ones),
      CASE(this_machine_has_what_its_affinity_allows),
      CASE(launchers_are_known_by_their_variables),
      CASE(the_rank_is_said_beside_the_tasks),
      CASE(more_tasks_than_mpi_joined_are_refused),
      CASE(processors_are_named),
      CASE(the_largest_cache_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
