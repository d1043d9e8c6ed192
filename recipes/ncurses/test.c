/* Draws on a screen and reads the cell back from the library's own picture of it. */
#include <curses.h>
#include <stdio.h>

int main(void) {
  if (!initscr()) return 1;
  mvaddstr(2, 3, "drawn");
  refresh();
  chtype cell = mvinch(2, 4);
  endwin();
  return (cell & A_CHARTEXT) == 'r' ? 0 : 2;
}
