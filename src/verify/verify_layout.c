#include "verify/verify_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verify/shrink_parts.h"

/* In fp64 a right layout differs by the order of its sums: 1e-15 of what is summed; over five steps
 * that grows to 1.02e-8 at most in 2,000 random layouts; a wrong one of the tests by more than
 * 1e-7. On a device's kernels: so many times what they do to the same tensor on one device, but no
 * less than the floor. Over 470 random layouts a dtype the errors of all gradients together are up
 * to 4.4 times those of one device in the first step, up to 25 times in later ones; those of one
 * tensor up to 10 times in fp16 and, in 1,000 layouts, to 17 in fp32. */
static const double later_multiple = 32; /* where rounding has grown over steps, as chaos does */

/* Where the median error over tensors is above the cap the kernels are at fault, unless the model
 * makes as much of fp32's rounding, for its unit. */
typedef struct rounding {
  ls_dtype compute;
  double floor, later_floor, cap, multiple, epsilon;
  double unit; /* of rounding to nearest: the largest relative error */
} rounding;

/* Below its epsilon AdamW makes as much of rounding as of a gradient: that of a gradient which is
 * zero but for rounding goes either way. The least for each dtype. */
static const rounding roundings[] = {{LS_F64, 1e-10, 1e-7, 0, 0, 1e-5, 0x1p-53},
                                     {LS_F32, 1e-6, 1e-6, 1e-4, 32, 1e-2, 0x1p-24},
                                     {LS_F16, 1e-3, 1e-3, 0.05, 12, 1e-1, 0x1p-11},
                                     {LS_BF16, 1e-2, 1e-2, 0.3, 8, 1e-1, 0x1p-8}};

static const rounding *rounding_of(ls_dtype compute) {
  for (size_t r = 0; r < sizeof roundings / sizeof *roundings; r++)
    if (roundings[r].compute == compute) return &roundings[r];
  ls_panic("no tolerance for %s", ls_dtype_name(compute));
}

/* A step large enough that what it does to the parameters is seen in the next. */
static const double learning_rate = 0.01;

/* What a gradient in fp64 that is zero but for rounding may be of the norm of all. */
static const double sign_of_rounding = 1e-13;

/* Of fp16's gradients: any power of two that neither overflows nor loses them. */
static const double loss_scale = 1024;

/* A rank that waits this long for another does so for ever. */
static const double deadline_s = 60;

enum { SEED = 20261121 };

static const char *const row_names[LS_EQUALITY_KINDS] = {
    [LS_EQUALITY_LOSS] = "loss",
    [LS_EQUALITY_GRADIENTS] = "gradients, step 1",
    [LS_EQUALITY_NORM] = "gradient norm",
    [LS_EQUALITY_FIRST] = "parameters, step 1",
    [LS_EQUALITY_FINAL] = "parameters, step 5",
};

const char *ls_layout_row_name(ls_equality_kind kind) {
  return row_names[kind];
}

static void add_row(ls_layout_verification *about, const char *key, const char *from,
                    const char *to, const char *why) {
  *LS_APPEND(about->arena, &about->shrunk->rows) = (ls_shrink_row){key, from, to, why};
}

static const char *number(ls_arena *arena, double value) {
  return ls_arena_printf(arena, "%.3g", value);
}

static void choose_dtype(ls_layout_verification *about) {
  ls_layout *layout = &about->shrunk->layout;
  if (about->options.kernels || layout->compute == LS_F64) return;
  add_row(about, "dtype", ls_session_dtype(about->session), "fp64",
          about->session->config.fp8
              ? "reference kernels: nothing is rounded but to fp8 (--kernels keeps it)"
              : "reference kernels, so that rounding hides nothing (--kernels keeps it)");
  if (layout->grad_dtype != LS_F32)
    add_row(about, "grad_dtype", ls_dtype_name(layout->grad_dtype), "fp64", "as dtype");
  layout->compute = LS_F64;
  layout->grad_dtype = LS_F32;
}

static void choose_epsilon(ls_layout_verification *about) {
  ls_optimizer *optimizer = &about->shrunk->layout.optimizer;
  const double least = rounding_of(about->shrunk->layout.compute)->epsilon;
  if (!ls_optimizer_takes(optimizer, "optimizer.eps") || optimizer->epsilon >= least) return;
  add_row(about, "optimizer.eps", number(about->arena, optimizer->epsilon),
          number(about->arena, least), "below it AdamW makes as much of rounding as of a gradient");
  optimizer->epsilon = least;
}

/* A drive that is another machine's is not needed for so small a model. */
static void choose_path(ls_layout_verification *about) {
  const ls_offload *offload = &about->shrunk->layout.offload;
  const char *path = about->session->run->offload.path;
  about->offload_path = path;
  if ((*path && access(path, W_OK | X_OK) == 0) ||
      (offload->optimizer != LS_TIER_NVME && offload->parameters != LS_TIER_NVME &&
       offload->activations != LS_TIER_NVME))
    return;
  about->offload_path = "/tmp";
  add_row(about, "offload.path", *path ? path : "none", about->offload_path,
          "a folder that is here");
}

static void choose_training(ls_layout_verification *about) {
  const ls_run_file *run = about->session->run;
  ls_arena *arena = about->arena;
  about->learning_rate = learning_rate;
  if (run->train.epochs > 0)
    add_row(about, "train.epochs", number(arena, run->train.epochs),
            ls_arena_printf(arena, "%d steps", LS_TRAJECTORY_STEPS),
            "enough for a wrong update to show");
  else if (run->train.steps != LS_TRAJECTORY_STEPS)
    add_row(about, "train.steps", ls_arena_printf(arena, "%lld", (long long)run->train.steps),
            ls_arena_printf(arena, "%d", LS_TRAJECTORY_STEPS), "enough for a wrong update to show");
  add_row(about, "train.lr", number(arena, run->train.lr), number(arena, learning_rate),
          "steps large enough to be seen in the next loss");
  if (run->device.memory)
    add_row(about, "device.memory", ls_arena_printf(arena, "%lld", (long long)run->device.memory),
            "auto", "so small a model fits");
  choose_path(about);
  choose_dtype(about);
  choose_epsilon(about);
}

/* What a layout does to it, it does to a model of the shape that is trained. */
static void choose_teacher(ls_layout_verification *about) {
  if (!about->session->teacher) return;
  about->teacher = about->shrunk->config;
  about->teacher.lora_rank = 0;
  about->teacher.teacher = true;
  add_row(about, "teacher", about->session->run->teacher, "drawn, of the small model's shape",
          "cut as that is");
}

ls_status ls_verify_layout_prepare(ls_arena *arena, const ls_session *session,
                                   const ls_verify_layout_options *options,
                                   ls_layout_verification **verification, ls_error *error) {
  ls_layout_verification *made = LS_NEW(arena, ls_layout_verification);
  made->arena = arena;
  made->session = session;
  made->options = *options;
  LS_TRY(ls_shrink(arena, &session->config, &session->layout, session->batch, session->sequence,
                   session->graph, &made->shrunk, error));
  const ls_layout *layout = &made->shrunk->layout;
  choose_teacher(made);
  made->ranks = ls_layout_ranks(layout);
  choose_training(made);
  *verification = made;
  return LS_OK;
}

/* As many groups at a time as there can be of the run's, of few pairs. */
static ls_text_pairs texts_of(const ls_layout_verification *about) {
  const ls_shrunk *shrunk = about->shrunk;
  const ls_text_pairs run = ls_session_training(about->session).texts;
  const int64_t small = shrunk->batch / shrunk->layout.microbatches;
  ls_text_pairs made = ls_shrink_texts(&shrunk->config, small);
  if (run.pairs == 0) return made;
  made.scale = run.scale;
  if (run.texts > 2 && shrunk->form.sequence > 2) made.texts = 3;
  if (shrunk->form.sequence >= 2 * made.texts && run.pairs > 1) made.pairs = 2;
  const bool several = about->session->batch / about->session->layout.microbatches > run.group;
  if (several && small % 2 == 0) made.group = small / 2;
  return made;
}

static ls_experiment experiment_of(const ls_layout_verification *about) {
  const ls_shrunk *shrunk = about->shrunk;
  ls_model_teacher teacher = ls_session_training(about->session).teacher;
  if (teacher.config) teacher.config = &about->teacher;
  if (teacher.top > shrunk->config.vocabulary) teacher.top = shrunk->config.vocabulary;
  return (ls_experiment){.config = &shrunk->config,
                         .sequences = shrunk->batch,
                         .sequence = shrunk->form.sequence,
                         .freeze = shrunk->freeze.items,
                         .freeze_count = shrunk->freeze.count,
                         .settings = shrunk->settings,
                         .seed = SEED,
                         .pairs = ls_session_training(about->session).pairs,
                         .texts = texts_of(about),
                         .weights = about->session->run->classes.weight,
                         .teacher = teacher,
                         .documents = ls_run_masks_documents(&about->session->run->data),
                         .saved = true,
                         .learning_rate = about->learning_rate,
                         .offload_path = about->offload_path,
                         .deadline_s = deadline_s};
}

/* One device with the same optimizer and nothing else of the layout. */
static ls_status run_one_device(const ls_layout_verification *about, ls_dtype compute,
                                ls_trajectory *result, ls_error *error) {
  ls_experiment experiment = experiment_of(about);
  ls_layout one = ls_layout_default();
  one.compute = compute;
  one.optimizer = about->shrunk->layout.optimizer;
  if (compute != LS_F64) {
    if (compute == about->shrunk->layout.compute) one.grad_dtype = about->shrunk->layout.grad_dtype;
    experiment.device.kind = "cpu";
    experiment.loss_scale = compute == LS_F16 ? loss_scale : 0;
  }
  const ls_status status = ls_trajectory_run(about->arena, &experiment, &one, result, error);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "one device");
}

/* Clipping that never happens is not in play: where the gradients of the small model are below the
 * norm they are clipped to, the norm is lowered and the reference repeated. */
static ls_status make_reference(ls_layout_verification *about, ls_trajectory *reference,
                                ls_error *error) {
  ls_optimizer *optimizer = &about->shrunk->layout.optimizer;
  LS_TRY(run_one_device(about, LS_F64, reference, error));
  double smallest = reference->norm[0];
  for (int s = 1; s < LS_TRAJECTORY_STEPS; s++) smallest = fmin(smallest, reference->norm[s]);
  if (optimizer->clip <= 0 || !isfinite(smallest) || optimizer->clip < smallest) return LS_OK;
  add_row(about, "train.clip", number(about->arena, optimizer->clip),
          number(about->arena, smallest / 2),
          ls_arena_printf(about->arena, "in effect: the small model's gradients begin at %.3g",
                          smallest));
  optimizer->clip = smallest / 2;
  return run_one_device(about, LS_F64, reference, error);
}

/* Lion steps by the sign of a gradient, of one that is zero but for rounding as well (a bias of
 * keys has one): that sign is another in each layout, and says nothing of it. */
static ls_status freeze_signs_of_rounding(ls_layout_verification *about, ls_trajectory *reference,
                                          ls_error *error) {
  ls_shrunk *shrunk = about->shrunk;
  if (!ls_optimizer_row_of(&shrunk->layout.optimizer)->signs) return LS_OK;
  const int before = shrunk->freeze.count;
  for (int p = 0; p < reference->parameters; p++) {
    double most = 0;
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
      for (int64_t i = 0; i < reference->elements[p]; i++)
        most = fmax(
            most, fabs(reference->gradient[s * reference->parameters + p][i]) / reference->norm[s]);
    if (most > 0 && most < sign_of_rounding)
      *LS_APPEND(about->arena, &shrunk->freeze) = reference->name[p];
  }
  const int count = shrunk->freeze.count - before;
  if (count == 0) return LS_OK;
  add_row(about, "train.freeze", "parts of the model",
          ls_arena_printf(about->arena, "%d parameters more", count),
          ls_arena_printf(about->arena,
                          "their gradients are zero but for rounding, of which %s takes the sign",
                          ls_optimizer_row_of(&shrunk->layout.optimizer)->name));
  return run_one_device(about, LS_F64, reference, error);
}

static const double single_multiple = 4; /* of fp32's error on the same model, for its unit */

/* Whether the kernels alone are off by more than rounding explains: the cap, or what the model
 * makes of fp32's. */
static ls_status check_kernels(const ls_layout_verification *about, const ls_trajectory *reference,
                               const ls_trajectory *rounded, ls_error *error) {
  const rounding *of = rounding_of(about->shrunk->layout.compute), *single = rounding_of(LS_F32);
  const double usual = ls_equality_median(rounded, reference, LS_EQUALITY_GRADIENTS);
  double cap = of->cap;
  if (!(usual <= cap) && of->unit > single->unit) {
    ls_trajectory fine;
    LS_TRY(run_one_device(about, LS_F32, &fine, error));
    const double finest = ls_equality_median(&fine, reference, LS_EQUALITY_GRADIENTS);
    if (finest <= single->cap) cap = fmax(cap, single_multiple * of->unit / single->unit * finest);
  }
  if (usual <= cap) return LS_OK;
  return ls_fail(error, LS_REFUTED,
                 "gradients are off by %.3g on one device with %s kernels; at most %.3g is right: "
                 "the kernels are at fault, not the layout",
                 usual, ls_dtype_name(of->compute), cap);
}

/* What the run's kernels and dtype do to one device; `rounded` keeps it. */
static ls_status find_tolerances(const ls_layout_verification *about,
                                 const ls_trajectory *reference, ls_trajectory *rounded,
                                 ls_equality_tolerances *tolerances, ls_error *error) {
  const ls_dtype compute = about->shrunk->layout.compute;
  const rounding *of = rounding_of(compute);
  *tolerances = (ls_equality_tolerances){of->floor, of->later_floor, .rounded = NULL};
  if (compute == LS_F64) return LS_OK;
  LS_TRY(run_one_device(about, compute, rounded, error));
  *tolerances =
      (ls_equality_tolerances){of->floor, of->later_floor, of->multiple, later_multiple, rounded};
  return check_kernels(about, reference, rounded, error);
}

/* "step 3", or a tensor's name. */
static void print_where(const ls_trajectory *of, const ls_equality_gap *gap, char *where,
                        size_t bytes) {
  if (gap->parameter < 0)
    snprintf(where, bytes, "step %d", gap->step + 1);
  else
    snprintf(where, bytes, "%s", of->name[gap->parameter]);
}

static int64_t numbers_compared(const ls_trajectory *of, ls_equality_kind kind) {
  if (kind == LS_EQUALITY_LOSS || kind == LS_EQUALITY_NORM) return LS_TRAJECTORY_STEPS;
  int64_t count = 0;
  for (int p = 0; p < of->parameters; p++) count += of->elements[p];
  return count;
}

static void fill_rows(ls_layout_verification *about, const ls_trajectory *found,
                      const ls_trajectory *reference, const ls_equality_tolerances *tolerances) {
  for (int k = 0; k < LS_EQUALITY_KINDS; k++) {
    ls_layout_row *row = &about->rows[k];
    const ls_equality_gap worst =
        ls_equality_worst(found, reference, (ls_equality_kind)k, tolerances);
    row->compared = numbers_compared(found, (ls_equality_kind)k);
    row->worst = worst.relative;
    row->tolerance = worst.allowed;
    row->ok = worst.relative <= worst.allowed;
    print_where(found, &worst, row->where, sizeof row->where);
  }
  about->compared = true;
}

/* "the gradient of head.weight in step 1 is off by 0.2 (...)". */
static const char *describe_gap(ls_arena *arena, const ls_trajectory *of, ls_equality_kind kind,
                                const ls_equality_gap *gap) {
  const int step = gap->step + 1;
  const char *element = "", *what;
  if (gap->parameter < 0) {
    what = ls_arena_printf(arena, "the %s of step %d", row_names[kind], step);
  } else {
    const char *name = of->name[gap->parameter];
    element = ls_arena_printf(arena, "element %lld is ", (long long)gap->element);
    what = kind == LS_EQUALITY_GRADIENTS
               ? ls_arena_printf(arena, "the gradient of %s in step %d", name, step)
               : ls_arena_printf(arena, "%s after step %d", name, step);
  }
  return ls_arena_printf(arena,
                         "%s is off by %.3g (%s%.9g in place of %.9g), and at most %.3g is right",
                         what, gap->relative, element, gap->found, gap->expected, gap->allowed);
}

/* A step's loss comes before its gradients, these before their norm, that before the update. */
static int time_of(ls_equality_kind kind, const ls_equality_gap *gap) {
  return gap->step * LS_EQUALITY_KINDS + (int)kind;
}

/* What differs first, and where that is a loss or a norm the first tensor too. */
static void find_first(ls_layout_verification *about, const ls_trajectory *found,
                       const ls_trajectory *reference, const ls_equality_tolerances *tolerances) {
  const char *first = NULL, *tensor = NULL;
  int first_time = 0, tensor_time = 0;
  for (int k = 0; k < LS_EQUALITY_KINDS; k++) {
    const ls_equality_kind kind = (ls_equality_kind)k;
    ls_equality_gap gap;
    if (!ls_equality_first(found, reference, kind, tolerances, &gap)) continue;
    const int time = time_of(kind, &gap);
    const char *text = describe_gap(about->arena, found, kind, &gap);
    if (!first || time < first_time) {
      first = text;
      first_time = time;
    }
    if (gap.parameter < 0 || (tensor && time >= tensor_time)) continue;
    tensor = text;
    tensor_time = time;
  }
  if (!first) return;
  snprintf(about->first, sizeof about->first, "%s%s%s", first,
           tensor && tensor != first ? "; the first tensor: " : "",
           tensor && tensor != first ? tensor : "");
}

static ls_status run_layout(const ls_layout_verification *about, ls_trajectory *found,
                            ls_error *error) {
  ls_experiment experiment = experiment_of(about);
  const ls_layout *layout = &about->shrunk->layout;
  experiment.device.kind = layout->compute != LS_F64 ? "cpu" : NULL;
  experiment.loss_scale = about->session->layout.compute == LS_F16 ? loss_scale : 0;
  experiment.alter = about->options.alter;
  experiment.alter_context = about->options.alter_context;
  const ls_status status = ls_trajectory_run(about->arena, &experiment, layout, found, error);
  if (status == LS_OK || found->unlike) return LS_OK;
  if (status == LS_REFUTED)
    return ls_fail(error, LS_INTERNAL, "nothing to alter in these programs");
  return ls_error_prefix(error, "the shrunk layout");
}

ls_status ls_verify_layout_run(ls_layout_verification *verification, ls_error *error) {
  ls_trajectory reference, rounded, found = {0};
  ls_equality_tolerances tolerances;
  const char *source = verification->session->run->path;
  if (!*source) source = "this layout";
  LS_TRY(make_reference(verification, &reference, error));
  LS_TRY(freeze_signs_of_rounding(verification, &reference, error));
  LS_TRY(find_tolerances(verification, &reference, &rounded, &tolerances, error));
  LS_TRY(run_layout(verification, &found, error));
  fill_rows(verification, &found, &reference, &tolerances);
  find_first(verification, &found, &reference, &tolerances);
  if (!*verification->first && found.unlike)
    snprintf(verification->first, sizeof verification->first,
             "%s: ranks that hold the same part of it end with different values", found.unlike);
  if (!*verification->first) return LS_OK;
  return ls_fail(error, LS_REFUTED, "%s differs from one device: %s", source, verification->first);
}
