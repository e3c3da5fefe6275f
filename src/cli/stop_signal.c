#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/stop.h"
#include "cli/command.h"

/* Signal handlers can reach nothing else. */
static volatile sig_atomic_t stop_asked;
static const char *answer;

/* The second SIGINT or SIGTERM ends the process at once. */
static void ask_to_stop(int number) {
  /* Two signals may come to two threads at once. */
  const bool before = __atomic_exchange_n(&stop_asked, 1, __ATOMIC_RELAXED);
  if (before && (number == SIGINT || number == SIGTERM)) {
    signal(number, SIG_DFL);
    raise(number);
  }
  if (!before && answer) (void)!write(STDERR_FILENO, answer, strlen(answer));
}

void ls_command_catch_signals(const char *said) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
  struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  answer = said;
  for (int i = 0; i < 4; i++) {
    struct sigaction before;
    sigaction(numbers[i], NULL, &before);
    if (numbers[i] == SIGHUP && before.sa_handler == SIG_IGN) continue; /* nohup */
    sigaction(numbers[i], &action, NULL);
  }
  ls_stop_listen(&stop_asked);
}

void ls_command_answer_no_signals(void) {
  answer = NULL;
}
