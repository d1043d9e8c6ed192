/* Two random identifiers differ, and one written out and read again stays itself. */
#include <stdio.h>
#include <uuid/uuid.h>

int main(void) {
  uuid_t one, two, again;
  char text[37];
  uuid_generate_random(one);
  uuid_generate_time(two);
  if (uuid_compare(one, two) == 0 || uuid_type(one) != UUID_TYPE_DCE_RANDOM) return 1;
  uuid_unparse_lower(one, text);
  puts(text);
  return uuid_parse(text, again) == 0 && uuid_compare(one, again) == 0 ? 0 : 2;
}
