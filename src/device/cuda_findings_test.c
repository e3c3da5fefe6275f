/* GPUs on the stand-ins of NVIDIA's libraries: what is there, what is missing, too old or wrong,
 * and each call of the driver and of NVML failing once, each said in one line and nothing left
 * held. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "device/cuda/kernels/cuda_modules.h"
#include "device/cuda/libraries.h"
#include "device/gpus.h"
#include "support/stand_in/stand_in.h"

static const char *const files[] = {"libcuda.so.1",      "libnvidia-ml.so.1", "libcublasLt.so.13",
                                    "libcublasLt.so.12", "libcudnn.so.9",     "libnccl.so.2"};
enum { FILES = sizeof files / sizeof *files };

static ls_arena *arena;
static const char *stand_ins;
static char *work; /* a folder of this test */
static int folders;

static int set_up(void **state) {
  (void)state;
  const char *build = getenv("LS_BUILD_DIR");
  char here[4096];
  arena = ls_arena_create();
  if (!getcwd(here, sizeof here)) return -1;
  stand_ins = ls_arena_printf(arena, "%s%s%s/tests/stand_in", build ? "" : here, build ? "" : "/",
                              build ? build : "build");
  work = ls_arena_printf(arena, "%s/cuda_findings_test.XXXXXX", "/tmp");
  return mkdtemp(work) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  const ls_status status = ls_directory_remove(work, NULL);
  ls_arena_destroy(&arena);
  return status == LS_OK ? 0 : -1;
}

/* Of the launcher of this test, and of a test that failed. */
static int forget(void **state) {
  (void)state;
  unsetenv("CUDA_VISIBLE_DEVICES");
  return 0;
}

static const char *new_folder(void) {
  const char *folder = ls_arena_printf(arena, "%s/%d", work, folders++);
  assert_int_equal(ls_directory_make(folder, NULL), LS_OK);
  return folder;
}

static void put(const char *path, const char *text) {
  char *full = ls_arena_printf(arena, "%s%s", work, path);
  char *slash = strrchr(full, '/');
  *slash = 0;
  assert_int_equal(ls_directory_make(full, NULL), LS_OK);
  *slash = '/';
  assert_int_equal(ls_file_write(full, text, strlen(text), NULL), LS_OK);
}

static void put_link(const char *folder, const char *name, const char *file) {
  assert_int_equal(symlink(ls_arena_printf(arena, "%s/%s", stand_ins, file),
                           ls_arena_printf(arena, "%s/%s", folder, name)),
                   0);
}

/* The stand-ins but for two. */
static const char *all_but(const char *one, const char *another) {
  const char *folder = new_folder();
  for (int f = 0; f < FILES; f++)
    if (strcmp(files[f], one) != 0 && strcmp(files[f], another) != 0)
      put_link(folder, files[f], files[f]);
  return folder;
}

static ls_findings look_in(const char *folder, const char *settings) {
  ls_findings all = {.arena = arena};
  setenv("LS_STAND_IN", settings, 1);
  ls_device_findings(&all, work, folder);
  return all;
}

static ls_findings look(const char *settings) {
  return look_in(stand_ins, settings);
}

static void fail_with_lines(const ls_findings *all, const char *what) {
  for (int f = 0; f < all->list.count; f++)
    print_error("%s %s: %s: %s\n", ls_verdict_name(all->list.items[f].verdict),
                all->list.items[f].subject, all->list.items[f].found,
                all->list.items[f].remedy ? all->list.items[f].remedy : "");
  fail_msg("%s", what);
}

/* One line of this verdict is about the subject, has the text, and, where it is no good, says what
 * to do. */
static void says(const ls_findings *all, ls_verdict verdict, const char *subject,
                 const char *text) {
  int found = 0;
  for (int f = 0; f < all->list.count; f++) {
    const ls_finding *line = &all->list.items[f];
    if (strcmp(line->subject, subject) != 0) continue;
    found++;
    if (line->verdict != verdict || !strstr(line->found, text) || strchr(line->found, '\n'))
      fail_with_lines(all, ls_arena_printf(arena, "%s: expected %s, \"%s\"", subject,
                                           ls_verdict_name(verdict), text));
  }
  if (found != 1)
    fail_with_lines(all, ls_arena_printf(arena, "%s: %d lines, expected 1", subject, found));
}

static int count_of(const ls_findings *all, ls_verdict verdict) {
  int count = 0;
  for (int f = 0; f < all->list.count; f++) count += all->list.items[f].verdict == verdict;
  return count;
}

/* Those that this version has where it finds GPUs: several are not tried, and without nvcc there
 * are no kernels. */
static int usual_warnings(const ls_findings *all) {
  int several = 0;
  for (int f = 0; f < all->list.count; f++)
    several += strcmp(all->list.items[f].subject, "training") == 0 &&
               all->list.items[f].verdict == LS_VERDICT_WARNING;
  return several + !ls_cuda_modules[0].name;
}

static void warns_only_of(const ls_findings *all, int more) {
  if (count_of(all, LS_VERDICT_FAIL) ||
      count_of(all, LS_VERDICT_WARNING) != usual_warnings(all) + more)
    fail_with_lines(all, "other warnings or failures than expected");
}

static void fails_only_once(const ls_findings *all) {
  if (count_of(all, LS_VERDICT_FAIL) != 1) fail_with_lines(all, "expected one line that fails");
}

static void without_a_driver_there_are_none(void **state) {
  (void)state;
  ls_findings all = look_in(new_folder(), "");
  says(&all, LS_VERDICT_OK, "NVIDIA GPUs", "none: training runs on the CPU");
  assert_int_equal(ls_findings_worst(&all), LS_VERDICT_OK);
  put("/sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n");
  put("/sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n");
  all = look_in(new_folder(), "");
  says(&all, LS_VERDICT_FAIL, "NVIDIA driver", "1 GPU on the PCI bus; found no libcuda.so.1");
}

static void good_gpus_are_fine(void **state) {
  (void)state;
  static const struct {
    int count;
    const char *which;
  } hosts[] = {{1, "GPU 0"}, {2, "GPU 0-1"}, {8, "GPU 0-7"}};
  for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) {
    const ls_findings all = look(ls_arena_printf(arena, "gpus=%d", hosts[h].count));
    warns_only_of(&all, 0);
    says(&all, LS_VERDICT_OK, "NVIDIA driver", "580.65.05, for CUDA 13.0");
    says(&all, LS_VERDICT_OK, "cuBLASLt", "13.1.0 for CUDA 13.0");
    says(&all, LS_VERDICT_OK, "cuDNN", "9.19.0");
    says(&all, LS_VERDICT_OK, "NCCL", "2.28.9");
    says(&all, LS_VERDICT_OK, ls_arena_printf(arena, "%s kind", hosts[h].which), "sm_90");
    says(&all, LS_VERDICT_OK, ls_arena_printf(arena, "%s memory", hosts[h].which),
         "80.0 GiB of 80.0 GiB free");
    says(&all, LS_VERDICT_OK, ls_arena_printf(arena, "%s trial", hosts[h].which), "made and freed");
    if (hosts[h].count > 1) says(&all, LS_VERDICT_OK, "links", "all pairs: peer access, NVLink");
  }
}

static void drivers_and_libraries_are_held_against_each_other(void **state) {
  (void)state;
  ls_findings all = look("driver=11080");
  says(&all, LS_VERDICT_FAIL, "NVIDIA driver", "is CUDA 11.8; expected CUDA 12.0");
  fails_only_once(&all);
  all = look("driver=12040"); /* the older of two fits */
  says(&all, LS_VERDICT_OK, "cuBLASLt", "12.9.0 for CUDA 12.9");
  says(&all, LS_VERDICT_WARNING, "cuDNN", "is for CUDA 13, and the driver runs CUDA 12.4");
  says(&all, LS_VERDICT_WARNING, "NCCL", "is for CUDA 13, and the driver runs CUDA 12.4");
  all = look("driver=12040,cudnn_cuda=12040,nccl_cuda=12020");
  says(&all, LS_VERDICT_OK, "NCCL", "2.28.9 for CUDA 12.2");
  warns_only_of(&all, 0);
  all = look_in(all_but("libcublasLt.so.12", ""), "driver=12040,cudnn_cuda=12040,nccl_cuda=12020");
  says(&all, LS_VERDICT_FAIL, "cuBLASLt", "pip install nvidia-cublas-cu12");
  all = look_in(all_but("libcublasLt.so.12", ""), "cublaslt=140000");
  says(&all, LS_VERDICT_FAIL, "cuBLASLt", "is 14.0.0; expected 12.0 or newer of the same major");
  all = look("cudnn=80905");
  says(&all, LS_VERDICT_WARNING, "cuDNN", "is 8.9.5; expected 9.0");
  all = look("nccl=21805");
  says(&all, LS_VERDICT_WARNING, "NCCL", "is 2.18.5; expected 2.19");
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  ls_findings all = look_in(all_but("libnvidia-ml.so.1", ""), "");
  says(&all, LS_VERDICT_WARNING, "NVML", "found no libnvidia-ml.so.1");
  says(&all, LS_VERDICT_OK, "NVIDIA driver", "CUDA 13.0");
  says(&all, LS_VERDICT_OK, "GPU 0 memory", "80.0 GiB");
  warns_only_of(&all, 1);
  all = look_in(all_but("libcublasLt.so.13", "libcublasLt.so.12"), "");
  says(&all, LS_VERDICT_FAIL, "cuBLASLt", "found no libcublasLt.so.13");
  fails_only_once(&all);
  all = look_in(all_but("libcudnn.so.9", ""), "");
  says(&all, LS_VERDICT_WARNING, "cuDNN", "attention falls back to our own kernel");
  warns_only_of(&all, 1);
  all = look_in(all_but("libnccl.so.2", ""), "gpus=1");
  says(&all, LS_VERDICT_WARNING, "NCCL", "one GPU does without it");
  all = look_in(all_but("libnccl.so.2", ""), "gpus=2");
  says(&all, LS_VERDICT_WARNING, "NCCL", "and hosts, send data through the host's memory");
  const char *folder = all_but("libnccl.so.2", "libcudnn.so.9");
  put_link(folder, "libnccl.so.2", "libcudnn.so.9"); /* a library without the symbols */
  assert_int_equal(
      ls_file_write(ls_arena_printf(arena, "%s/libcudnn.so.9", folder), "text", 4, NULL), LS_OK);
  all = look_in(folder, "");
  says(&all, LS_VERDICT_WARNING, "NCCL", "has no ncclGetVersion, so it is too old or damaged");
  says(&all, LS_VERDICT_WARNING, "cuDNN", "cannot be opened");
}

static void gpus_that_cannot_train_are_said(void **state) {
  (void)state;
  static const struct {
    const char *settings, *subject, *text;
    ls_verdict verdict;
  } cases[] = {
      {"cc=75", "GPU 0 kind", "sm_75, 132 processors: older than sm_80", LS_VERDICT_FAIL},
      {"mode=2", "GPU 0 compute mode", "prohibited", LS_VERDICT_FAIL},
      {"held=20,holder=1", "GPU 0 memory", "60.0 GiB of 80.0 GiB free; pid 1 (",
       LS_VERDICT_WARNING},
      {"held=20,holder=1", "GPU 0 memory", ") holds 20.0 GiB", LS_VERDICT_WARNING},
      {"memory=80,held=80", "GPU 0 memory", "less than a context takes", LS_VERDICT_FAIL},
      {"ecc=3", "GPU 0 ECC", "3 uncorrected errors", LS_VERDICT_FAIL},
      {"rows=2", "GPU 0 ECC", "could not be replaced", LS_VERDICT_FAIL},
      {"rows=1", "GPU 0 ECC", "are to be replaced", LS_VERDICT_WARNING},
      {"reasons=64", "GPU 0 clocks", "held down: too hot (hardware)", LS_VERDICT_WARNING},
      {"width=8", "GPU 0 PCIe", "x8 of x16", LS_VERDICT_WARNING},
      {"mig=1", "GPU 0 MIG", "no peer access", LS_VERDICT_WARNING},
      {"vmm=none", "GPU 0 trial", "no virtual memory management", LS_VERDICT_WARNING},
      {"gpus=2,peers=none", "links", "all pairs: no peer access (PCIe, one switch)",
       LS_VERDICT_WARNING},
      {"gpus=2,exports=none", "links", "within a process alone: ", LS_VERDICT_OK},
      {"gpus=2,peers=pcie", "links", "all pairs: peer access, PCIe, one switch", LS_VERDICT_OK}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_findings all = look(cases[c].settings);
    says(&all, cases[c].verdict, cases[c].subject, cases[c].text);
    for (int f = 0; f < all.list.count; f++)
      if (strcmp(all.list.items[f].subject, cases[c].subject) == 0 &&
          cases[c].verdict != LS_VERDICT_OK)
        assert_non_null(all.list.items[f].remedy);
  }
  const ls_findings no_ecc = look("ecc=-1"); /* as on GeForce */
  warns_only_of(&no_ecc, 0);
  const ls_findings pairs = look("gpus=4,peers=pairs");
  int lines = 0;
  for (int f = 0; f < pairs.list.count; f++) {
    if (strcmp(pairs.list.items[f].subject, "links") != 0) continue;
    lines++;
    const bool ok = pairs.list.items[f].verdict == LS_VERDICT_OK;
    assert_non_null(strstr(pairs.list.items[f].found, ok ? "0-1, 2-3: peer access, NVLink"
                                                         : "0-2, 0-3, 1-2, 1-3: no peer access"));
  }
  assert_int_equal(lines, 2);
}

static void visible_devices_are_checked(void **state) {
  (void)state;
  static const struct {
    const char *value, *text;
    ls_verdict verdict;
  } cases[] = {{"", "hides all GPUs", LS_VERDICT_WARNING},
               {"-1", "hides all GPUs", LS_VERDICT_WARNING},
               {"1", "\"1\": 1 GPU", LS_VERDICT_OK},
               {"1,0", "2 GPUs", LS_VERDICT_OK},
               {"GPU-1", "1 GPU", LS_VERDICT_OK},
               {"0,7", "\"7\": there is no such GPU", LS_VERDICT_FAIL},
               {"7", "there is no such GPU", LS_VERDICT_FAIL},
               {"two", "neither a number nor GPU-UUID", LS_VERDICT_FAIL},
               {"0,0", "the driver shows 0 of 2 GPUs", LS_VERDICT_FAIL}};
  for (int managed = 0; managed < 2; managed++) {
    const char *folder = managed ? stand_ins : all_but("libnvidia-ml.so.1", "");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      const bool known = managed || !strstr(cases[c].text, "there is no such GPU");
      setenv("CUDA_VISIBLE_DEVICES", cases[c].value, 1);
      const ls_findings all = look_in(folder, "gpus=2");
      says(&all, cases[c].verdict, "CUDA_VISIBLE_DEVICES",
           known ? cases[c].text : "the driver shows");
    }
  }
  setenv("CUDA_VISIBLE_DEVICES", "GPU-7", 1);
  const ls_findings none = look("gpus=2");
  says(&none, LS_VERDICT_FAIL, "CUDA_VISIBLE_DEVICES", "\"GPU-7\": no GPU has this UUID");
  setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* NVML is asked for the right one */
  const ls_findings one = look("gpus=2");
  says(&one, LS_VERDICT_OK, "GPU 0 kind", "Stand-in GPU");
}

/* GPU 0 beside the first hardware threads, GPU 1 beside threads that no machine has. */
static void far_gpus_are_told(void **state) {
  (void)state;
  put("/sys/bus/pci/devices/0000:10:00.0/numa_node", "0\n");
  put("/sys/bus/pci/devices/0000:11:00.0/numa_node", "1\n");
  put("/sys/devices/system/node/node0/cpulist", "0-8000\n");
  put("/sys/devices/system/node/node1/cpulist", "8190-8191\n");
  const ls_findings all = look("gpus=2");
  says(&all, LS_VERDICT_OK, "GPU 0 NUMA node", "0");
  says(&all, LS_VERDICT_WARNING, "GPU 1 NUMA node", "1, and this process may run on none");
  put("/sys/bus/pci/devices/0000:10:00.0/numa_node", "-1\n"); /* as virtual machines say */
  put("/sys/bus/pci/devices/0000:11:00.0/numa_node", "-1\n");
  const ls_findings unknown = look("gpus=2");
  warns_only_of(&unknown, 0);
}

static void variables_are_told(void **state) {
  (void)state;
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  const ls_findings all = look("gpus=2");
  says(&all, LS_VERDICT_WARNING, "NCCL_P2P_DISABLE", "\"1\": GPUs of a host copy");
  says(&all, LS_VERDICT_OK, "NCCL_DEBUG", "INFO");
  unsetenv("NCCL_P2P_DISABLE");
  unsetenv("NCCL_DEBUG");
  const ls_findings none = look("gpus=2");
  says(&none, LS_VERDICT_OK, "NCCL's environment", "nothing is set");
}

/* A stand-in held open, so that what was done can be asked after the library closed it. */
typedef struct held {
  void *handle;
  void (*begin)(void);
  const char *(*failed)(void), *(*left)(void);
  int (*calls)(void);
} held;

static held hold(const char *file) {
  held self = {.handle = dlopen(ls_arena_printf(arena, "%s/%s", stand_ins, file), RTLD_NOW)};
  if (!self.handle) fail_msg("%s", dlerror());
  *(void **)&self.begin = dlsym(self.handle, "ls_stand_in_begin");
  *(void **)&self.failed = dlsym(self.handle, "ls_stand_in_failed");
  *(void **)&self.left = dlsym(self.handle, "ls_stand_in_left");
  *(void **)&self.calls = dlsym(self.handle, "ls_stand_in_calls");
  return self;
}

/* Fails call after call of a library; each is one line, of this verdict. */
/* Whether a line is of a call that failed. A build without kernels has nothing to load, and says
 * that. */
static bool says_of(const ls_finding *line, const char *failed) {
  return strstr(line->found, failed) || (strcmp(failed, "cuLibraryLoadData") == 0 &&
                                         strstr(line->found, "this build has no CUDA kernels"));
}

static int fail_each(const char *file, const char *key, ls_verdict verdict, const char *unsaid) {
  const held driver = hold("libcuda.so.1"), nvml = hold("libnvidia-ml.so.1");
  const held *self = strcmp(file, "libcuda.so.1") == 0 ? &driver : &nvml;
  int calls = 0;
  for (int n = 1;; n++) {
    driver.begin();
    nvml.begin();
    const ls_findings all = look(ls_arena_printf(arena, "gpus=2,peers=pcie,%s=%d", key, n));
    const char *failed = self->failed();
    if (driver.left()) fail_msg("%s failed: left are %s", failed, driver.left());
    if (nvml.left()) fail_msg("%s failed: %s", failed, nvml.left());
    if (!failed) break;
    calls++;
    int lines = 0;
    for (int f = 0; f < all.list.count; f++)
      lines += says_of(&all.list.items[f], failed) && all.list.items[f].verdict == verdict;
    const int others = count_of(&all, LS_VERDICT_FAIL) - (verdict == LS_VERDICT_FAIL ? lines : 0);
    if ((lines != 1 && strcmp(failed, unsaid) != 0) || others)
      fail_with_lines(&all, ls_arena_printf(arena, "call %d, %s: %d lines", n, failed, lines));
  }
  dlclose(driver.handle);
  dlclose(nvml.handle);
  return calls;
}

static void each_call_of_the_driver_fails_once(void **state) {
  (void)state;
  const int calls = fail_each("libcuda.so.1", "fail", LS_VERDICT_FAIL, "");
  print_message("%d calls, each failed once\n", calls);
  assert_true(calls > 50);
}

/* What NVML cannot say keeps nobody from training; its end is of no consequence. */
static void each_call_of_nvml_fails_once(void **state) {
  (void)state;
  const int calls = fail_each("libnvidia-ml.so.1", "nvml_fail", LS_VERDICT_WARNING, "nvmlShutdown");
  print_message("%d calls, each failed once\n", calls);
  assert_true(calls > 20);
}

static void memory_is_limited_to_the_byte(void **state) {
  (void)state;
  ls_findings all = look("memory=1,held=1");
  says(&all, LS_VERDICT_FAIL, "GPU 0 trial", "cuMemCreate of GPU 0: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

static void places_are_tried_in_order(void **state) {
  (void)state;
  const char *home = new_folder(), *environment = new_folder();
  const char *packages = "lib/python3.11/site-packages/nvidia/cu13/lib";
  const char *folder = ls_arena_printf(arena, "%s/%s", environment, packages);
  ls_error error = {LS_OK, ""};
  assert_int_equal(ls_directory_make(ls_arena_printf(arena, "%s/lib64", home), NULL), LS_OK);
  assert_int_equal(ls_directory_make(folder, NULL), LS_OK);
  put_link(folder, "libnccl.so.2", "libnccl.so.2");
  setenv("CUDA_HOME", home, 1);
  setenv("VIRTUAL_ENV", environment, 1);
  ls_cuda_libraries libraries = {.places = ls_cuda_places_usual(arena)};
  assert_true(libraries.places.loader);
  assert_int_equal(libraries.places.folder_count, 2);
  libraries.places.loader = false; /* of this machine */
  assert_int_equal(ls_cuda_open(&libraries, LS_CUDA_NCCL, &error), LS_OK);
  assert_non_null(strstr(libraries.of[LS_CUDA_NCCL].path, packages));
  assert_string_equal(libraries.of[LS_CUDA_NCCL].version, "2.28.9");
  assert_int_equal(ls_cuda_open(&libraries, LS_CUDA_CUDNN, &error), LS_INPUT);
  assert_null(libraries.cudnn.cudnnCreate);
  ls_cuda_close(&libraries);
  assert_null(libraries.nccl.ncclSend);
  put_link(ls_arena_printf(arena, "%s/lib64", home), "libnccl.so.2", "libnccl.so.2");
  assert_int_equal(ls_cuda_open(&libraries, LS_CUDA_NCCL, &error), LS_OK);
  assert_non_null(strstr(libraries.of[LS_CUDA_NCCL].path, "lib64"));
  ls_cuda_close(&libraries);
  unsetenv("CUDA_HOME");
  unsetenv("VIRTUAL_ENV");
}

/* NVIDIA's own, where this machine has them: every symbol is there. */
static void real_libraries_are_opened(void **state) {
  (void)state;
  ls_cuda_libraries libraries = {.places = ls_cuda_places_usual(arena)};
  for (int id = LS_CUDA_CUBLASLT; id <= LS_CUDA_NCCL; id++) {
    ls_error error = {LS_OK, ""};
    if (ls_cuda_open(&libraries, (ls_cuda_library_id)id, &error) == LS_OK)
      print_message("%s %s: %s\n", ls_cuda_library_name((ls_cuda_library_id)id),
                    libraries.of[id].version, libraries.of[id].path);
    else if (!strstr(error.text, "found no"))
      fail_msg("%s", error.text);
  }
  ls_cuda_close(&libraries);
}

#define GPU_TEST(name) cmocka_unit_test_setup(name, forget)

int main(void) {
  const struct CMUnitTest tests[] = {
      GPU_TEST(without_a_driver_there_are_none),
      GPU_TEST(good_gpus_are_fine),
      GPU_TEST(drivers_and_libraries_are_held_against_each_other),
      GPU_TEST(what_is_missing_is_named),
      GPU_TEST(gpus_that_cannot_train_are_said),
      GPU_TEST(visible_devices_are_checked),
      GPU_TEST(far_gpus_are_told),
      GPU_TEST(variables_are_told),
      GPU_TEST(each_call_of_the_driver_fails_once),
      GPU_TEST(each_call_of_nvml_fails_once),
      GPU_TEST(memory_is_limited_to_the_byte),
      GPU_TEST(places_are_tried_in_order),
      GPU_TEST(real_libraries_are_opened),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
