/* Reads a line through the editor, and finds it again in the history. */
/* readline's headers count on stdio's: this order */
/* clang-format off */
#include <stdio.h>
#include <string.h>
#include <readline/readline.h>
#include <readline/history.h>
/* clang-format on */

int main(void) {
  char* line = readline("");
  if (!line || strcmp(line, "first line")) return 1;
  using_history();
  add_history(line);
  HIST_ENTRY* entry = history_get(history_base);
  return entry && !strcmp(entry->line, line) ? 0 : 2;
}
