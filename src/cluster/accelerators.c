#include "cluster/accelerators.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/distance.h"

/* As makers and their users had published by November 2026; sources that change have their date. */
static const ls_accelerator catalog[] = {
    {"p100-sxm2-16", "NVIDIA Tesla P100 SXM2 16GB", 60, 16384, false, 56,
     "NVIDIA datasheet/whitepaper"},
    {"p100-pcie-16", "NVIDIA Tesla P100 PCIe 16GB", 60, 16384, false, 56,
     "NVIDIA datasheet/whitepaper"},
    {"v100-sxm2-16", "NVIDIA Tesla V100 SXM2 16GB", 70, 16384, false, 80,
     "NVIDIA datasheet/whitepaper"},
    {"v100-sxm2-32", "NVIDIA Tesla V100 SXM2 32GB", 70, 32510, true, 80,
     "NVIDIA datasheet/whitepaper"},
    {"v100-pcie-16", "NVIDIA Tesla V100 PCIe 16GB", 70, 16384, false, 80,
     "NVIDIA datasheet/whitepaper"},
    {"v100-pcie-32", "NVIDIA Tesla V100 PCIe 32GB", 70, 32510, true, 80,
     "NVIDIA datasheet/whitepaper"},
    {"t4", "NVIDIA T4", 75, 16384, false, 40, "NVIDIA datasheet/whitepaper"},
    {"rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 75, 11264, false, 68, "NVIDIA Turing whitepaper"},
    {"quadro-rtx8000", "NVIDIA Quadro RTX 8000", 75, 49152, false, 72, "NVIDIA Turing whitepaper"},
    {"rtx3060-12", "NVIDIA GeForce RTX 3060 12GB", 86, 12288, false, 28, "Wikipedia tables"},
    {"rtx3080-10", "NVIDIA GeForce RTX 3080 10GB", 86, 10240, false, 68, "NVIDIA GA102 whitepaper"},
    {"rtx3080ti", "NVIDIA GeForce RTX 3080 Ti", 86, 12288, false, 80, "Wikipedia tables"},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 86, 24576, true, 82, "NVIDIA GA102 whitepaper"},
    {"rtx3090ti", "NVIDIA GeForce RTX 3090 Ti", 86, 24564, true, 84, "Wikipedia tables"},
    {"rtx4060ti-16", "NVIDIA GeForce RTX 4060 Ti 16GB", 89, 16384, false, 34, "Wikipedia tables"},
    {"rtx4070tis", "NVIDIA GeForce RTX 4070 Ti SUPER", 89, 16384, false, 66, "Wikipedia tables"},
    {"rtx4080", "NVIDIA GeForce RTX 4080", 89, 16384, false, 76, "NVIDIA Ada whitepaper"},
    {"rtx4080s", "NVIDIA GeForce RTX 4080 SUPER", 89, 16384, false, 80, "Wikipedia tables"},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 89, 24564, true, 128, "NVIDIA Ada whitepaper"},
    {"rtx5060ti-16", "NVIDIA GeForce RTX 5060 Ti 16GB", 120, 16384, false, 36, "Wikipedia tables"},
    {"rtx5070", "NVIDIA GeForce RTX 5070", 120, 12288, false, 48,
     "NVIDIA RTX Blackwell whitepaper"},
    {"rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", 120, 16384, false, 70,
     "NVIDIA RTX Blackwell whitepaper"},
    {"rtx5080", "NVIDIA GeForce RTX 5080", 120, 16384, false, 84,
     "NVIDIA RTX Blackwell whitepaper"},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 120, 32607, true, 170,
     "NVIDIA RTX Blackwell whitepaper"},
    {"rtx-a4000", "NVIDIA RTX A4000", 86, 16384, false, 48, "NVIDIA datasheet/whitepaper"},
    {"rtx-a5000", "NVIDIA RTX A5000", 86, 24564, true, 64, "NVIDIA datasheet/whitepaper"},
    {"rtx-a6000", "NVIDIA RTX A6000", 86, 49140, true, 84, "NVIDIA datasheet/whitepaper"},
    {"a10", "NVIDIA A10", 86, 23028, true, 72, "NVIDIA datasheet/whitepaper"},
    {"a10g", "NVIDIA A10G (AWS)", 86, 23028, true, 80, "NVIDIA datasheet/whitepaper"},
    {"a16", "NVIDIA A16 (one of four GPUs)", 86, 16384, false, 10, "NVIDIA datasheet/whitepaper"},
    {"a30", "NVIDIA A30", 80, 24576, false, 56, "NVIDIA datasheet/whitepaper"},
    {"a40", "NVIDIA A40", 86, 46068, true, 84, "NVIDIA datasheet/whitepaper"},
    {"a100-pcie-40", "NVIDIA A100 PCIe 40GB", 80, 40960, true, 108, "NVIDIA datasheet/whitepaper"},
    {"a100-sxm-40", "NVIDIA A100 SXM4 40GB", 80, 40960, true, 108, "NVIDIA datasheet/whitepaper"},
    {"a100-pcie-80", "NVIDIA A100 PCIe 80GB", 80, 81920, true, 108, "NVIDIA datasheet/whitepaper"},
    {"a100-sxm-80", "NVIDIA A100 SXM4 80GB", 80, 81920, true, 108, "NVIDIA datasheet/whitepaper"},
    {"a800-sxm-80", "NVIDIA A800 SXM4 80GB", 80, 81920, true, 108,
     "stas00/ml-engineering, 2026-08-22"},
    {"rtx6000-ada", "NVIDIA RTX 6000 Ada Generation", 89, 49140, true, 142,
     "NVIDIA datasheet/whitepaper"},
    {"l4", "NVIDIA L4", 89, 23034, true, 58, "NVIDIA datasheet/whitepaper"},
    {"l40", "NVIDIA L40", 89, 46068, true, 142, "NVIDIA datasheet/whitepaper"},
    {"l40s", "NVIDIA L40S", 89, 46068, true, 142, "NVIDIA datasheet/whitepaper"},
    {"h20-sxm-96", "NVIDIA H20 SXM 96GB", 90, 97871, true, 78, "stas00/ml-engineering, 2026-08-22"},
    {"h100-pcie-80", "NVIDIA H100 PCIe 80GB", 90, 81559, true, 114, "NVIDIA H100 datasheet"},
    {"h100-sxm-80", "NVIDIA H100 SXM5 80GB", 90, 81559, true, 132, "NVIDIA H100 datasheet"},
    {"h100-nvl-94", "NVIDIA H100 NVL 94GB", 90, 95830, true, 132, "NVIDIA H100 datasheet"},
    {"h800-sxm-80", "NVIDIA H800 SXM5 80GB", 90, 81559, true, 132,
     "stas00/ml-engineering, 2026-08-22"},
    {"h200-sxm-141", "NVIDIA H200 SXM5 141GB", 90, 143771, true, 132, "NVIDIA H200 datasheet"},
    {"h200-nvl-141", "NVIDIA H200 NVL 141GB", 90, 143771, true, 132, "NVIDIA H200 NVL datasheet"},
    {"gh200-96", "NVIDIA GH200 96GB HBM3", 90, 97871, true, 132, "NVIDIA GH200 datasheet"},
    {"gh200-144", "NVIDIA GH200 144GB HBM3e", 90, 147456, false, 132, "NVIDIA GH200 datasheet"},
    {"b100-sxm-192", "NVIDIA B100 SXM 192GB", 100, 196608, false, 0,
     "NVIDIA Blackwell architecture brief"},
    {"b200-sxm-180", "NVIDIA B200 SXM 180GB", 100, 183359, true, 148,
     "NVIDIA Blackwell architecture brief"},
    {"gb200-186", "NVIDIA GB200 (one GPU of NVL72)", 100, 190464, false, 148,
     "NVIDIA GB200 NVL72 datasheet"},
    {"b300-sxm-288", "NVIDIA B300 SXM 288GB", 103, 294912, false, 160,
     "glennklockwood.com garden B300"},
    {"gb300-288", "NVIDIA GB300 (one GPU of NVL72)", 103, 294912, false, 160,
     "NVIDIA GB300 NVL72 page"},
    {"rtxpro6000-bw", "NVIDIA RTX PRO 6000 Blackwell Workstation", 120, 97887, true, 188,
     "NVIDIA RTX PRO Blackwell datasheet"},
    {"gb10-spark", "NVIDIA GB10 (DGX Spark)", 121, 131072, false, 0, "NVIDIA DGX Spark page"},
    {"rubin-288", "NVIDIA Rubin (VR200, announced)", 0, 294912, false, 0,
     "stas00/ml-engineering, 2026-08-22"},
    {"mi100-32", "AMD Instinct MI100", 0, 32768, false, 120, "AMD MI100 datasheet"},
    {"mi210-64", "AMD Instinct MI210", 0, 65536, false, 104, "AMD MI210 datasheet"},
    {"mi250-128", "AMD Instinct MI250", 0, 131072, false, 208, "AMD MI250 datasheet"},
    {"mi250x-128", "AMD Instinct MI250X", 0, 131072, false, 220, "AMD MI250X datasheet"},
    {"mi300x-192", "AMD Instinct MI300X", 0, 196608, false, 304, "AMD MI300X datasheet"},
    {"mi325x-256", "AMD Instinct MI325X", 0, 262144, false, 304, "AMD MI325X datasheet"},
    {"mi350x-288", "AMD Instinct MI350X", 0, 294912, false, 256,
     "stas00/ml-engineering, 2026-08-22"},
    {"mi355x-288", "AMD Instinct MI355X", 0, 294912, false, 256, "AMD MI355X datasheet"},
    {"rx7900xtx", "AMD Radeon RX 7900 XTX", 0, 24576, false, 96, "ROCm gpu-specs"},
    {"gaudi2-96", "Intel Gaudi2", 0, 98304, false, 24, "Intel Gaudi2 documentation"},
    {"gaudi3-128", "Intel Gaudi3", 0, 131072, false, 64, "Intel Gaudi3 white paper"},
    {"max1550-128", "Intel Data Center GPU Max 1550", 0, 131072, false, 128,
     "Intel Max product page"},
    {"arc-a770-16", "Intel Arc A770 16GB", 0, 16384, false, 32, "Intel ARK"},
    {"arc-b580-12", "Intel Arc B580", 0, 12288, false, 20, "Intel ARK"},
    {"tpu-v3", "TPU v3 (chip)", 0, 32768, false, 2, "Google Cloud TPU docs"},
    {"tpu-v4", "TPU v4 (chip)", 0, 32768, false, 2, "Google Cloud TPU docs"},
    {"tpu-v5e", "TPU v5e (chip)", 0, 16384, false, 1, "Google Cloud TPU docs"},
    {"tpu-v5p", "TPU v5p (chip)", 0, 97280, false, 2, "Google Cloud TPU docs"},
    {"tpu-v6e", "TPU v6e Trillium (chip)", 0, 32768, false, 1, "Google Cloud TPU docs"},
    {"tpu7x", "TPU7x Ironwood (chip)", 0, 196608, false, 2, "Google Cloud TPU docs"},
    {"trainium1", "Trainium1 (chip)", 0, 32768, false, 2, "AWS Neuron docs"},
    {"trainium2", "Trainium2 (chip)", 0, 98304, false, 8, "AWS Neuron docs"},
    {"trainium3", "Trainium3 (chip)", 0, 147456, false, 8, "AWS Neuron docs"},
    {"m2-ultra-192", "Apple M2 Ultra 76-core GPU", 0, 196608, false, 76, "Apple M2 Ultra page"},
};

enum { KNOWN = sizeof catalog / sizeof *catalog };

const ls_accelerator *ls_accelerators_at(int index) {
  return index < KNOWN ? &catalog[index] : NULL;
}

/* Whether an id is this word, or goes on after it with another part. */
static bool begins_with(const char *id, const char *word) {
  const size_t length = strlen(word);
  return strncasecmp(id, word, length) == 0 && (!id[length] || id[length] == '-');
}

const char *ls_accelerators_read_count(const char *text, int *count) {
  enum { MOST = 1 << 24 };
  *count = 0;
  char *end;
  const long value = strtol(text, &end, 10);
  if (end == text || (*end != 'x' && *end != 'X')) return text;
  if (value < 1 || value > MOST) return NULL;
  *count = (int)value;
  return end + 1;
}

/* "a100-pcie-40, a100-sxm-40, ...": those that begin with the word. */
static const char *list_beginning(ls_arena *arena, const char *word) {
  const char *text = "";
  for (int i = 0; i < KNOWN; i++)
    if (begins_with(catalog[i].id, word))
      text = ls_arena_printf(arena, "%s%s%s", text, *text ? ", " : "", catalog[i].id);
  return text;
}

/* The three ids that a mistyped one is nearest to. */
static const char *list_nearest(ls_arena *arena, const char *word) {
  const char *names[KNOWN], *text = "";
  for (int i = 0; i < KNOWN; i++) names[i] = catalog[i].id;
  for (int named = 0; named < 3; named++) {
    int least = -1, best = 0;
    for (int i = 0; i < KNOWN; i++) {
      if (!names[i]) continue;
      const int length = (int)strlen(word);
      const char *start = ls_arena_printf(arena, "%.*s", length > 3 ? length : 3, names[i]);
      const int distance = ls_distance(word, start);
      if (least >= 0 && distance >= least) continue;
      least = distance;
      best = i;
    }
    text = ls_arena_printf(arena, "%s%s%s", text, *text ? ", " : "", names[best]);
    names[best] = NULL;
  }
  return text;
}

ls_status ls_accelerators_find(ls_arena *arena, const char *text, int *count,
                               const ls_accelerator **found, ls_error *error) {
  const char *word = ls_accelerators_read_count(text, count);
  if (!word || !*word)
    return ls_fail(error, LS_INPUT,
                   "--on %s: expected a count and an accelerator, as in 64xH100-SXM", text);
  int matches = 0;
  for (int i = 0; i < KNOWN; i++) {
    if (!begins_with(catalog[i].id, word)) continue;
    matches++;
    *found = &catalog[i];
    if (strcasecmp(catalog[i].id, word) == 0) return LS_OK;
  }
  if (matches == 1) return LS_OK;
  if (matches)
    return ls_fail(error, LS_INPUT, "--on %s: found several; expected one of %s", text,
                   list_beginning(arena, word));
  return ls_fail(error, LS_INPUT, "--on %s: no such accelerator; the nearest are %s", text,
                 list_nearest(arena, word));
}
