/* CRC-32C by the vectors of RFC 3720, appendix B.4. */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void the_vectors_of_its_source(void **state) {
  (void)state;
  unsigned char data[32] = {0};
  assert_int_equal(ls_crc32c(data, sizeof data), 0x8a9136aa);
  memset(data, 0xff, sizeof data);
  assert_int_equal(ls_crc32c(data, sizeof data), 0x62a8ab43);
  for (int i = 0; i < 32; i++) data[i] = (unsigned char)i;
  assert_int_equal(ls_crc32c(data, sizeof data), 0x46dd794e);
  assert_int_equal(ls_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(ls_crc32c("", 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_vectors_of_its_source)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
