/* Calls a function through libffi, and a closure made by libffi as if it were a function. */
#include <ffi.h>
#include <stdio.h>

static double mix(int a, double b) { return a * 2 + b; }

static void twice(ffi_cif* cif, void* result, void** arguments, void* data) {
  (void)cif;
  (void)data;
  *(ffi_arg*)result = 2 * *(int*)arguments[0];
}

int main(void) {
  ffi_type* types[] = {&ffi_type_sint, &ffi_type_double};
  int a = 20;
  double b = 2.5, answer = 0;
  void* values[] = {&a, &b};
  ffi_cif cif;
  if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, 2, &ffi_type_double, types) != FFI_OK) return 1;
  ffi_call(&cif, FFI_FN(mix), &answer, values);
  if (answer != 42.5) return 2;

  int (*code)(int);
  ffi_closure* closure = ffi_closure_alloc(sizeof *closure, (void**)&code);
  if (!closure || ffi_prep_cif(&cif, FFI_DEFAULT_ABI, 1, &ffi_type_sint, types) != FFI_OK) return 3;
  if (ffi_prep_closure_loc(closure, &cif, twice, NULL, (void*)code) != FFI_OK) return 4;
  if (code(21) != 42) return 5;
  ffi_closure_free(closure);
  puts("called and called back");
  return 0;
}
