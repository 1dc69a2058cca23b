"""jupyter-kernel-test's suite against the kernel `hatchery`: all of it but the pager."""

import unittest

import jupyter_kernel_test as suite


class Kernel(suite.KernelTests):
    kernel_name = "hatchery"
    language_name = "python"
    file_extension = ".py"

    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "%tim", "matches": {"time", "timeit"}},
        {"text": "import keyw", "matches": {"keyword"}},
        {"text": "'a'.isal", "matches": set()},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "%time 1"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_generate_error = "raise"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        {"code": "'x' * 3", "result": "'xxx'"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
         "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))",
         "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class Welcome(suite.IopubWelcomeTests):
    kernel_name = "hatchery"
    support_iopub_welcome = True


if __name__ == "__main__":
    unittest.main(verbosity=2)
