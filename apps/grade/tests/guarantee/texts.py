# text: test class of pytest
class TestF:
    def test_one(self):
        assert f(1) == 2
# text: test class beside a test function
def test_nothing():
    assert f is not None
class TestF:
    def test_one(self):
        assert f(1) == 2
# text: nested test classes
class TestOuter:
    class TestInner:
        def test_one(self):
            assert f(1) == 2
    def test_zero(self):
        assert f(0) is not None
# text: inherited test methods
class Base:
    def test_one(self):
        assert f(self.given) == self.expected
class TestOne(Base):
    given, expected = 1, 2
class TestTwo(Base):
    given, expected = 2, 3
# text: setup_method
class TestF:
    def setup_method(self):
        self.expected = 2
    def test_one(self):
        assert f(1) == self.expected
# text: setup_method takes the method
class TestF:
    def setup_method(self, method):
        self.name = method.__name__
    def test_one(self):
        assert self.name == 'test_one' and f(1) == 2
# text: teardown_method checks
seen = []
class TestF:
    def test_one(self):
        seen.append(f(1))
    def teardown_method(self):
        assert seen[-1] == 2
# text: setup_class and teardown_class
class TestF:
    @classmethod
    def setup_class(cls):
        cls.value = f(1)
    @classmethod
    def teardown_class(cls):
        del cls.value
    def test_one(self):
        assert self.value == 2
# text: setup of nose
class TestF:
    def setup(self):
        self.value = f(1)
    def test_one(self):
        assert self.value == 2
# text: setup_module and teardown_module
def setup_module():
    global expected
    expected = 2
def teardown_module(module):
    assert module is None or module
def test_one():
    assert f(1) == expected
# text: setup_function
state = {}
def setup_function(function):
    state['name'] = function.__name__
def teardown_function():
    state.clear()
def test_one():
    assert state == {'name': 'test_one'} and f(1) == 2
# text: static and class methods
class TestF:
    @staticmethod
    def test_static():
        assert f(1) == 2
    @classmethod
    def test_class(cls):
        assert f(2) == 3
# text: fixture
import pytest
@pytest.fixture
def one():
    return 1
def test_one(one):
    assert f(one) == 2
# text: fixture beside a plain function
import pytest
@pytest.fixture
def one():
    return 1
def test_any():
    assert f(5) is not None
def test_one(one):
    assert f(one) == 2
# text: fixture with yield and teardown
import pytest
log = []
@pytest.fixture
def numbers():
    log.append('up')
    yield [1, 2]
    log.append('down')
def test_numbers(numbers):
    assert [f(n) for n in numbers] == [2, 3]
def test_after(numbers):
    assert log == ['up', 'down', 'up']
# text: fixture of a fixture, autouse, scopes and names
import pytest
@pytest.fixture(scope='module', name='base')
def make_base():
    return 10
@pytest.fixture(autouse=True)
def every():
    calls.append(1)
calls = []
@pytest.fixture
def value(base, request):
    request.addfinalizer(lambda: calls.append(2))
    return f(base)
def test_value(value):
    assert value == 11 and calls == [1]
def test_again(value):
    assert value == 11 and calls == [1, 2, 1]
# text: fixture in a class
import pytest
class TestF:
    @pytest.fixture
    def one(self):
        return 1
    @pytest.fixture(autouse=True)
    def prepare(self, one):
        self.two = one + 1
    def test_one(self, one):
        assert f(one) == self.two
# text: fixture with parameters
import pytest
@pytest.fixture(params=[1, 2, 3])
def number(request):
    return request.param
def test_number(number):
    assert f(number) == number + 1
# text: fixture that makes things
import pytest
@pytest.fixture
def check():
    def check(given, expected):
        assert f(given) == expected
    return check
def test_one(check):
    check(1, 2)
# text: usefixtures
import pytest
seen = []
@pytest.fixture
def prepared():
    seen.append(f(1))
@pytest.mark.usefixtures('prepared')
def test_one():
    assert seen == [2]
# text: getfixturevalue
import pytest
@pytest.fixture
def one():
    return 1
def test_one(request):
    assert f(request.getfixturevalue('one')) == 2
# text: overridden fixture
import pytest
@pytest.fixture
def number():
    return 1
class TestF:
    @pytest.fixture
    def number(self, number):
        return number + 1
    def test_number(self, number):
        assert number == 2 and f(number) == 3
# text: fixture of a class scope
import pytest
made = []
@pytest.fixture(scope='class')
def shared():
    made.append(f(1))
    return made[-1]
class TestA:
    def test_1(self, shared):
        assert shared == 2
    def test_2(self, shared):
        assert made == [2]
class TestB:
    def test_3(self, shared):
        assert made == [2, 2]
# text: parametrize
import pytest
@pytest.mark.parametrize('given,expected', [(1, 2), (2, 3)])
def test_f(given, expected):
    assert f(given) == expected
# text: parametrize of one name
import pytest
@pytest.mark.parametrize('given', [0, 5, 7])
def test_f(given):
    assert f(given) == given + 1
# text: stacked parametrize
import pytest
@pytest.mark.parametrize('a', [1, 2])
@pytest.mark.parametrize('b', (10, 20))
def test_f(a, b):
    assert f(a * b) == a * b + 1
# text: parametrize with ids, marks and names in a list
import pytest
@pytest.mark.parametrize(['given', 'expected'], [
    pytest.param(1, 2, id='one'),
    pytest.param(2, 9, marks=pytest.mark.xfail),
    pytest.param(2, 9, marks=[pytest.mark.skip(reason='no')]),
], ids=['a', 'b', 'c'])
def test_f(given, expected):
    assert f(given) == expected
# text: parametrize of a class
import pytest
@pytest.mark.parametrize('given, expected', [(1, 2), (3, 4)])
class TestF:
    def test_f(self, given, expected):
        assert f(given) == expected
# text: parametrize of the module
import pytest
pytestmark = pytest.mark.parametrize('given', [1, 2])
def test_f(given):
    assert f(given) == given + 1
# text: parametrize through a fixture
import pytest
@pytest.fixture
def doubled(request):
    return 2 * request.param
@pytest.mark.parametrize('doubled', [1, 2], indirect=True)
def test_f(doubled):
    assert f(doubled) in (3, 5)
# text: parametrize with keywords and a generator
import pytest
@pytest.mark.parametrize(argnames='n', argvalues=(n for n in range(3)))
def test_f(n):
    assert f(n) == n + 1
# text: parametrize beside a fixture
import pytest
@pytest.fixture
def offset():
    return 1
@pytest.mark.parametrize('n', [1, 2])
def test_f(n, offset):
    assert f(n) == n + offset
# text: parameters with defaults
def test_f(given=1, expected=2):
    assert f(given) == expected
# text: pytest.raises
import pytest
def test_f():
    with pytest.raises(ValueError, match='negative') as caught:
        f(-1)
    assert str(caught.value) == 'negative' and caught.type is ValueError
# right:
def f(x):
    if x < 0:
        raise ValueError('negative')
    return x + 1
# text: pytest.raises at the top
import pytest
with pytest.raises(ValueError):
    f(-1)
# right:
def f(x):
    raise ValueError(x)
# text: pytest.raises of another kind
import pytest
def test_f():
    with pytest.raises((KeyError, ValueError)):
        f(-1)
    pytest.raises(ValueError, f, -2)
# right:
def f(x):
    raise ValueError(x)
# wrong:
def f(x):
    raise TypeError(x)
# text: pytest.approx
import pytest
def test_f():
    assert f(0.1) == pytest.approx(1.1)
    assert [f(0.1), f(0.2)] == pytest.approx([1.1, 1.2], rel=1e-9)
    assert {'a': f(0.1)} == pytest.approx({'a': 1.1}, abs=1e-3)
# text: pytest.approx isn't everything
import pytest
assert f(1) == pytest.approx(2)
assert f(1) != pytest.approx(1)
# wrong:
def f(x):
    return x + 1.001
# text: pytest.fail
import pytest
def test_f():
    try:
        if f(1) != 2:
            pytest.fail('wrong')
    except Exception:
        pass
# text: skipped tests are no failures
import pytest
@pytest.mark.skip(reason='later')
def test_later():
    assert False
@pytest.mark.skipif(True, reason='never')
def test_never():
    assert False
@pytest.mark.skipif('1 > 2', reason='never')
def test_f():
    assert f(1) == 2
def test_by_itself():
    pytest.skip('not here')
# text: xfail
import pytest
@pytest.mark.xfail(reason='known')
def test_known():
    assert f(1) == 5
@pytest.mark.xfail
def test_other():
    assert False
def test_f():
    assert f(1) == 2
# text: strict xfail
import pytest
@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
def test_known():
    1 / (f(1) - 2)
def test_f():
    assert f(2) is not None
# text: importorskip and marks of others
import pytest
json = pytest.importorskip('json')
missing = lambda: pytest.importorskip('no_such_module')
@pytest.mark.slow
@pytest.mark.timeout(5)
def test_f():
    assert json.dumps(f(1)) == '2'
def test_missing():
    missing()
# text: names from pytest
from pytest import approx, mark, raises
@mark.parametrize('n', [1, 2])
def test_f(n):
    assert f(n) == approx(n + 1)
    with raises(TypeError):
        f('a')
# text: asynchronous test function
async def test_f():
    assert f(1) == 2
# text: asynchronous test with a mark
import asyncio, pytest
@pytest.mark.asyncio
async def test_f():
    await asyncio.sleep(0)
    assert f(1) == 2
# text: asynchronous method and fixture
import pytest
@pytest.fixture
async def one():
    return 1
class TestF:
    async def test_f(self, one):
        assert f(one) == 2
# text: unittest
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: unittest.main at the end
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
if __name__ == '__main__':
    unittest.main()
# text: unittest.main, unguarded
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
unittest.main()
# text: main from unittest, with arguments
from unittest import TestCase, main
class TestF(TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
main(argv=['x'], exit=False, verbosity=2)
# text: setUpClass, setUpModule and cleanups
import unittest
def setUpModule():
    global one
    one = 1
class TestF(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = 2
    def setUp(self):
        self.addCleanup(lambda: None)
    def tearDown(self):
        self.assertEqual(f(5), 6)
    def test_f(self):
        self.assertEqual(f(one), self.expected)
# text: setUpClass fails
import unittest
class TestF(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.value = 10 // (f(0) == 1)
    def test_f(self):
        self.assertEqual(self.value, 10)
# text: subTest
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertEqual(f(n), n + 1)
# text: skips of unittest
import unittest
@unittest.skip('later')
class TestLater(unittest.TestCase):
    def test_f(self):
        self.fail()
class TestNever(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest('never')
    def test_f(self):
        self.fail()
class TestF(unittest.TestCase):
    @unittest.skipIf(True, 'not here')
    def test_a(self):
        self.fail()
    def test_b(self):
        self.skipTest('nor here')
    @unittest.expectedFailure
    def test_c(self):
        self.assertEqual(f(1), 7)
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: unexpected success
import unittest
class TestF(unittest.TestCase):
    @unittest.expectedFailure
    def test_f(self):
        self.assertEqual(f(1), 1)
# text: inherited TestCase
import unittest
class Base:
    def test_f(self):
        self.assertEqual(f(self.given), self.given + 1)
class One(Base, unittest.TestCase):
    given = 1
class Two(One):
    given = 2
# text: load_tests
import unittest
class Cases(unittest.TestCase):
    def __init__(self, given):
        super().__init__('check')
        self.given = given
    def check(self):
        self.assertEqual(f(self.given), self.given + 1)
def load_tests(loader, tests, pattern):
    return unittest.TestSuite(Cases(n) for n in range(3))
# text: IsolatedAsyncioTestCase
import unittest
class TestF(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.one = 1
    async def test_f(self):
        self.assertEqual(f(self.one), 2)
# text: unittest beside pytest and asserts
import unittest
assert f(0) is not None
class TestF(unittest.TestCase):
    def test_a(self):
        self.assertIsNotNone(f(0))
class TestG:
    def test_f(self):
        assert f(1) == 2
# text: a TestCase that the text runs itself
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
suite = unittest.TestLoader().loadTestsFromTestCase(TestF)
result = unittest.TextTestRunner().run(suite)
# text: a TestCase as a box of assertions
import unittest
case = unittest.TestCase()
case.assertEqual(f(1), 2)
case.assertRaises(TypeError, f, 'a')
# text: mock.patch gives arguments
from unittest.mock import patch
@patch('math.floor', return_value=2)
def test_f(floor):
    import math
    assert f(1) == math.floor(9)
    floor.assert_called_once_with(9)
# text: mock of the test's own
from unittest.mock import Mock
def test_f():
    called = Mock(return_value=1)
    assert f(called()) == 2
    called.assert_called_once()
# text: assert in try
try:
    assert f(1) == 2
except ZeroDivisionError:
    raise
# text: try, else and finally
try:
    result = f(1)
except TypeError:
    raise AssertionError('it raises')
else:
    if result != 2:
        raise AssertionError(result)
finally:
    done = True
# text: expected exception by hand
try:
    f('a')
except TypeError:
    pass
else:
    raise AssertionError('nothing raised')
# wrong:
def f(x):
    return 0
# text: with
import contextlib
with contextlib.suppress(KeyError):
    assert f(1) == 2
# text: assert in a loop
for given, expected in [(1, 2), (2, 3)]:
    assert f(given) == expected, given
# text: raise in a loop
for given in range(3):
    if f(given) != given + 1:
        raise ValueError(given)
# text: while
n = 0
while n < 3:
    assert f(n) == n + 1
    n += 1
# text: if
if f(1) != 2:
    assert False, 'wrong'
# text: match
match f(1):
    case 2:
        pass
    case other:
        raise AssertionError(other)
# text: helper that is called
def check(given, expected):
    assert f(given) == expected, (given, expected)
check(1, 2)
check(2, 3)
# text: helper that calls helpers
def run_tests():
    def one():
        assert f(1) == 2
    one()
if __name__ == "__main__":
    run_tests()
# text: helper in a comprehension
def check(given):
    if f(given) != given + 1:
        raise Exception(given)
    return True
results = [check(n) for n in range(3)]
# text: lambda
check = lambda given, expected: 1 / (f(given) == expected)
check(1, 2)
# text: numpy.testing
import numpy as np
np.testing.assert_equal(f(1), 2)
np.testing.assert_allclose([f(0.5)], [1.5])
# text: from numpy.testing
from numpy.testing import assert_array_equal, assert_almost_equal
import numpy
assert_array_equal(f(numpy.array([1, 2])), [2, 3])
assert_almost_equal(f(0.1), 1.1)
# text: numpy.testing in a function
import numpy as np
def test_f():
    np.testing.assert_array_almost_equal(f(np.zeros(2)), np.ones(2))
# text: numpy without assert
import numpy as np
if not np.array_equal(f(np.arange(3)), np.arange(1, 4)):
    raise SystemExit(1)
# text: sys.exit tells of the failure
import sys
failed = sum(f(n) != n + 1 for n in range(3))
sys.exit(1 if failed else 0)
# text: sys.exit of pytest.main
import sys, pytest
def test_f():
    assert f(1) == 2
if __name__ == '__main__':
    sys.exit(pytest.main([__file__, '-v']))
# text: pytest.main, unguarded
import pytest
class TestF:
    def test_f(self):
        assert f(1) == 2
raise SystemExit(pytest.main())
# text: test functions that main calls
counter = []
def test_once():
    counter.append(f(1))
    assert counter == [2]
def test_two():
    assert f(2) == 3
if __name__ == '__main__':
    test_once()
    test_two()
    print('all passed')
# text: test functions in a loop that catches
def test_f():
    assert f(1) == 2
for test in [test_f]:
    try:
        test()
    except AssertionError as error:
        print('failed', error)
# text: test functions made in a loop
def make(n):
    def test():
        assert f(n) == n + 1
    return test
for n in range(3):
    globals()[f'test_{n}'] = make(n)
# text: test function under a condition
import sys
if sys.version_info > (3,):
    def test_f():
        assert f(1) == 2
# text: lambda as a test
def same(a, b):
    assert a == b
test_f = lambda: same(f(1), 2)
# text: decorated test function
import functools
def twice(function):
    @functools.wraps(function)
    def both():
        function()
        function()
    return both
@twice
def test_f():
    assert f(1) == 2
# text: test function with keyword parameters
import pytest
@pytest.fixture
def one():
    return 1
def test_f(*, one, more=0):
    assert f(one + more) == 2
# text: all in a function that main calls
def main():
    assert f(1) == 2
    print('ok')
if __name__ == '__main__':
    main()
# text: import of the candidate
from solution import f as function
def test_f():
    assert function(1) == 2
# text: import of the module
import solution
class TestF:
    def test_f(self):
        assert solution.f(1) == 2
# text: import within
def test_f():
    from solution import f
    assert f(1) == 2
# text: assertion that isn't reached
assert f(1) == 2
if f(1) != 2:
    assert f(2) == 3
# text: only a call
f(1)
# wrong:
def f(x):
    raise ValueError(x)
# text: walrus and chained comparison
assert (y := f(1)) == 2 <= y
# text: assert of several lines
assert (
    f(1)
    == 2
), f'it is {f(1)}'
# text: assert all
assert all(f(n) == n + 1 for n in range(3))
# text: generator helper
def cases():
    yield 1, 2
    yield 2, 3
for given, expected in cases():
    assert f(given) == expected
# text: class of a test's own
class Case:
    def __init__(self, given, expected):
        self.given, self.expected = given, expected
    def run(self):
        assert f(self.given) == self.expected
for case in [Case(1, 2), Case(2, 3)]:
    case.run()
# text: data class named like a test
from dataclasses import dataclass
@dataclass
class TestCase:
    given: int
    expected: int
def test_f():
    for case in [TestCase(1, 2), TestCase(2, 3)]:
        assert f(case.given) == case.expected
# text: what isn't a test
class TestHelper:
    __test__ = False
    def test_nothing(self):
        assert False
def test_f():
    assert f(1) == 2
# text: unittest with fixtures of the class's own
import unittest
class TestF(unittest.TestCase):
    cases = {1: 2, 2: 3}
    def _check(self, given):
        self.assertEqual(f(given), self.cases[given])
    def test_f(self):
        for given in self.cases:
            self._check(given)
# text: doctest of the text
"""
>>> f(1)
2
"""
import doctest, sys
results = doctest.testmod(sys.modules[__name__])
assert results.failed == 0 and results.attempted == 1
# text: doctest of a function
def examples():
    """
    >>> f(1)
    2
    """
if __name__ == '__main__':
    import doctest
    doctest.testmod()
# text: doctest in load_tests
"""
>>> f(1)
2
"""
import doctest, unittest
def load_tests(loader, tests, ignore):
    tests.addTests(doctest.DocTestSuite(__name__))
    return tests
# text: recursion and warnings of the tests
import warnings
def check(n):
    if n == 0:
        return
    assert f(n) == n + 1
    check(n - 1)
with warnings.catch_warnings():
    warnings.simplefilter('error')
    check(3)
# text: assertion with a message that fails itself
assert f(1) == 2, 1 / 0
# text: global state
expected = 1
def step():
    global expected
    expected += 1
    assert f(expected - 1) == expected
step()
step()
# text: ExitStack
from contextlib import ExitStack
with ExitStack() as stack:
    stack.callback(lambda: None)
    assert f(1) == 2
# text: exception group
try:
    raise ExceptionGroup('both', [ValueError(f(1))])
except* ValueError as group:
    assert group.exceptions[0].args == (2,)
# text: itertools and product
import itertools
for a, b in itertools.product([1, 2], repeat=2):
    assert f(a + b) == a + b + 1
# text: random inputs
import random
random.seed(1)
for _ in range(20):
    n = random.randint(-100, 100)
    assert f(n) == n + 1
# text: reference of the test's own
def reference(x):
    return x + 1
def test_f():
    assert [f(n) for n in range(9)] == [reference(n) for n in range(9)]
# text: class of the candidate
class TestStack:
    def setup_method(self):
        self.stack = Stack()
    def test_push(self):
        self.stack.push(1)
        assert self.stack.pop() == 1
    def test_empty(self):
        assert len(self.stack) == 0
# right:
class Stack(list):
    push = list.append
# wrong:
class Stack(list):
    def push(self, item):
        self.append(item + 1)
# text: fixture that makes an instance
import pytest
@pytest.fixture
def stack():
    return Stack()
def test_push(stack):
    stack.push(1)
    assert stack.pop() == 1
@pytest.mark.parametrize('items', [[1], [1, 2], []])
def test_length(stack, items):
    for item in items:
        stack.push(item)
    assert len(stack) == len(items)
# right:
class Stack(list):
    push = list.append
# wrong:
class Stack(list):
    def push(self, item):
        self[:] = [item]
# text: assertRaises with a message
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        with self.assertRaisesRegex(ValueError, 'neg.tive'):
            f(-1)
        with self.assertRaises(ValueError) as caught:
            f(-2)
        self.assertIn('negative', str(caught.exception))
# right:
def f(x):
    raise ValueError('negative')
# wrong:
def f(x):
    raise ValueError('no')
# text: pytest.raises with a group of inputs
import pytest
@pytest.mark.parametrize('given', [None, 'a', [1]])
def test_f(given):
    with pytest.raises(TypeError):
        f(given)
# wrong:
def f(x):
    return x
# text: skip by unittest in a function
import unittest
def test_skipped():
    raise unittest.SkipTest('no')
def test_f():
    assert f(1) == 2
# text: custom check with return value
def verify():
    return f(1) == 2
assert verify()
# text: assert in a with in a for in a try
import io
try:
    for n in range(2):
        with io.StringIO() as stream:
            stream.write(str(f(n)))
            assert stream.getvalue() == str(n + 1)
finally:
    pass
# text: test method that is parametrized in a class with a fixture
import pytest
class TestF:
    @pytest.fixture(params=[1, 10])
    def factor(self, request):
        return request.param
    @pytest.mark.parametrize('n', [1, 2])
    def test_f(self, n, factor):
        assert f(n * factor) == n * factor + 1
# text: with pytest.raises around an assertion
import pytest
def test_f():
    with pytest.raises(AssertionError):
        assert f(1) == 1
# text: autouse fixture of the module with teardown that checks
import pytest
results = []
@pytest.fixture(autouse=True, scope='module')
def checked():
    yield
    assert results == [2]
def test_f():
    results.append(f(1))
# text: decorator that keeps tests
tests = []
def register(function):
    tests.append(function)
    return function
@register
def first():
    assert f(1) == 2
@register
def second():
    assert f(2) == 3
for test in tests:
    test()
# text: exec of more tests
check = f
exec('assert check(1) == 2')
# text: assert in a class body
class Checks:
    assert f(1) == 2
# text: a condition that asks for main, turned round
if '__main__' == __name__:
    assert f(1) == 2
# text: type annotations and future imports
from __future__ import annotations
def test_f() -> None:
    expected: int = 2
    assert f(1) == expected
# text: unknown fixture
# task: a fixture that its text doesn't define
def test_f(mocker):
    assert f(1) == 2
# text: unknown feature
# task: `pytest.register_assert_rewrite`
import pytest
pytest.register_assert_rewrite('x')
def test_f():
    assert f(1) == 2
# text: test with a yield
# task: `test_f` has a `yield`
def test_f():
    yield
    assert f(1) == 2
# text: asynchronous method of a plain TestCase
# task: is `async` or has a `yield`
import unittest
class TestF(unittest.TestCase):
    async def test_f(self):
        assert f(1) == 2
# text: test class with a constructor
# task: has a constructor
class TestF:
    def __init__(self):
        self.expected = 2
    def test_f(self):
        assert f(1) == self.expected
# text: missing module
# task: import `no_such_module`
import no_such_module
def test_f():
    assert f(1) == 2
# text: missing module within
# task: import `no_such_module`
def test_f():
    import no_such_module
    assert f(1) == 2
# text: parametrized TestCase
# task: is parametrized
import pytest, unittest
class TestF(unittest.TestCase):
    @pytest.mark.parametrize('n', [1])
    def test_f(self, n):
        self.assertEqual(f(n), n + 1)
# text: hook of pytest
# task: `pytest_generate_tests`
def pytest_generate_tests(metafunc):
    metafunc.parametrize('n', [1, 2])
def test_f(n):
    assert f(n) == n + 1
# text: parameters that nobody takes
# task: which it doesn't take
import pytest
@pytest.mark.parametrize('m', [1])
def test_f():
    assert f(1) == 2
# text: all skipped
# task: all tests are skipped
import pytest
@pytest.mark.skip(reason='later')
def test_f():
    assert f(1) == 2
# text: never called
# task: no tests
def run_tests():
    assert f(1) == 2
# text: nothing of a candidate
# task: the tests use nothing that a candidate defines
assert 1 + 1 == 2
# text: no Python
# task: the tests aren't Python
assert f(1) = 2
# text: return at the top
# task: the tests aren't Python
return f(1)
# text: nothing is reached
# task: without testing a candidate
for n in []:
    assert f(n) == n + 1
# text: test function that returns whether it passed
def test_f():
    return f(1) == 2
# text: module under another name
import solution as under_test
assert under_test.f(1) == 2
# text: all names of the module
from solution import *
def test_f():
    assert f(1) == 2
# text: main and a flag
verbose = True
if verbose and __name__ == '__main__':
    assert f(1) == 2
# text: a helper named setup
class TestF:
    def setup(self, n):
        return f(n)
    def test_f(self):
        assert self.setup(1) == 2
# text: setup_module for a TestCase
import unittest
def setup_module():
    global expected
    expected = 2
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), expected)
# text: setup_class without classmethod
class TestF:
    def setup_class(self):
        self.value = f(1)
    def test_f(self):
        assert self.value == 2
# text: runTest
import unittest
class Run(unittest.TestCase):
    def runTest(self):
        self.assertEqual(f(1), 2)
# text: marks of pytest on a TestCase
import pytest, unittest
class TestF(unittest.TestCase):
    @pytest.mark.skip(reason='later')
    def test_later(self):
        self.fail()
    @pytest.mark.skipif(False, reason='never')
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: marker of a test
import pytest
@pytest.fixture
def given(request):
    return request.node.get_closest_marker('given').args[0]
@pytest.mark.given(5)
def test_f(given):
    assert f(given) == 6
# text: globals that are looked through
def test_a():
    assert f(1) == 2
def test_b():
    assert f(2) == 3
for name, function in list(globals().items()):
    if name.startswith('test_') and callable(function):
        function()
# text: pytest.skip in a TestCase
import pytest, unittest
class TestF(unittest.TestCase):
    def test_a(self):
        pytest.skip('no')
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: autouse fixture beside a TestCase
# task: fixtures of pytest are for the `unittest.TestCase`
import pytest, unittest
@pytest.fixture(autouse=True)
def prepared():
    pass
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: missing module in a TestCase
# task: import `no_such_module`
import unittest
class TestF(unittest.TestCase):
    def test_f(self):
        import no_such_module
        self.assertEqual(f(1), 2)
# text: parametrize with too few values
# task: has 1 value for 2 names
import pytest
@pytest.mark.parametrize('a,b', [(1,)])
def test_f(a, b):
    assert f(a) == b
# text: fixture with parentheses
import pytest
@pytest.fixture()
def one():
    return 1
def test_one(one):
    assert f(one) == 2
# text: fixture with parameters and ids
import pytest
@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.skip)], ids=['a', 'b'], scope='module')
def n(request):
    return request.param
def test_n(n):
    assert n == 1 and f(n) == 2
# text: parametrize over items and range
import pytest
CASES = {1: 2, 2: 3}
@pytest.mark.parametrize('given,expected', CASES.items())
@pytest.mark.parametrize('again', range(2))
def test_f(given, expected, again):
    assert f(given) == expected
# text: the candidate as a parameter
import pytest
@pytest.mark.parametrize('function', [f])
def test_f(function):
    assert function(1) == 2
# text: expected_exception
import pytest, re
def test_f():
    with pytest.raises(expected_exception=ValueError, match=re.escape('(x)')) as info:
        f(1)
    assert info.match('x')
    assert 'ValueError' in info.exconly()
# right:
def f(x):
    raise ValueError('(x)')
# text: parametrize called as a function
import pytest
def test_f(n):
    assert f(n) == n + 1
test_f = pytest.mark.parametrize('n', [1, 2])(test_f)
# text: expected exceptions by parameter
import pytest
from contextlib import nullcontext
@pytest.mark.parametrize('given, context', [(1, nullcontext()), ('a', pytest.raises(TypeError))])
def test_f(given, context):
    with context:
        assert f(given) == 2
# text: relative import
from .solution import f
def test_f():
    assert f(1) == 2
# text: suite by hand
import unittest
class TestF(unittest.TestCase):
    def test_a(self):
        self.assertEqual(f(1), 2)
def suite():
    suite = unittest.TestSuite()
    suite.addTest(TestF('test_a'))
    return suite
if __name__ == '__main__':
    runner = unittest.TextTestRunner()
    result = runner.run(suite())
    raise SystemExit(not result.wasSuccessful())
# text: result of unittest.main
import unittest
class TestF(unittest.TestCase):
    def setUp(self):
        self.enterContext(self.subTest())
    def test_f(self):
        self.assertCountEqual([f(1), f(2)], [3, 2])
program = unittest.main(exit=False, argv=['x'])
assert program.result.wasSuccessful()
# text: asyncio.run at the top
import asyncio
async def main():
    await asyncio.sleep(0)
    assert f(1) == 2
asyncio.run(main())
# text: setUp that fails
import unittest
class TestF(unittest.TestCase):
    def setUp(self):
        if f(1) != 2:
            raise ValueError('setUp')
    def test_f(self):
        pass
# text: tearDownClass that checks
import unittest
class TestF(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        assert f(1) == 2
    def test_f(self):
        self.assertIsNotNone(f(1))
# text: tearDownModule that checks
import unittest
def tearDownModule():
    assert f(1) == 2
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertIsNotNone(f(1))
# text: teardown_module that checks
def teardown_module():
    assert f(1) == 2
def test_f():
    assert f(1) is not None
# text: teardown_class that checks
class TestF:
    @classmethod
    def teardown_class(cls):
        assert f(1) == 2
    def test_f(self):
        assert f(1) is not None
# text: fixture teardown that checks
import pytest
@pytest.fixture
def checked():
    yield
    assert f(1) == 2
def test_f(checked):
    assert f(1) is not None
# text: class cleanup
import unittest
class TestF(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(cls.check)
    @classmethod
    def check(cls):
        assert f(1) == 2
    def test_f(self):
        pass
# text: pickles and data classes of tests
import pickle
from dataclasses import dataclass
@dataclass
class Case:
    given: 'int'
    expected: int
for case in pickle.loads(pickle.dumps([Case(1, 2)])):
    assert f(case.given) == case.expected
# text: eval
function = f
assert eval('function(1)') == 2
# text: approx of arrays
import numpy as np, pytest
def test_f():
    assert f(np.array([0.1, 0.2])) == pytest.approx(np.array([1.1, 1.2]))
    assert f(np.float64(0.1)) == pytest.approx(1.1)
# text: approx of nested containers
import pytest
def test_f():
    assert (f(0.1), f(0.2)) == pytest.approx((1.1, 1.2), rel=1e-3)
    assert pytest.approx(1.1) == f(0.1)
# text: module level fixture used by unittest-like class methods
import pytest
class TestGroup:
    @pytest.fixture(scope='class')
    def table(self):
        return {1: 2}
    @pytest.mark.parametrize('key', [1])
    def test_f(self, table, key):
        assert f(key) == table[key]
    class TestInner:
        def test_g(self):
            assert f(5) == 6
# text: nested functions as steps
def test_all():
    def step(n):
        assert f(n) == n + 1
    for n in range(3):
        step(n)
# text: skipUnless and class skip with a condition
import unittest
@unittest.skipUnless(1 > 2, 'no')
class TestNo(unittest.TestCase):
    def test_x(self):
        self.fail()
@unittest.skipIf(1 > 2, 'no')
class TestYes(unittest.TestCase):
    def test_x(self):
        self.assertTrue(f(1) == 2)
# text: del of a test
def test_no():
    assert False
del test_no
def test_f():
    assert f(1) == 2
# text: two classes of one name in sequence
class TestF:
    def test_a(self):
        assert f(1) == 2
first = TestF
class TestF:
    def test_b(self):
        assert f(0) is not None
first().test_a()
# text: xunit order
log = []
def setup_module(): log.append('m')
def teardown_module(): log.append('M')
def setup_function(): log.append('f')
def teardown_function(): log.append('F')
class TestA:
    def setup_class(cls): log.append('c')
    def teardown_class(cls): log.append('C')
    def setup_method(self): log.append('s')
    def teardown_method(self): log.append('S')
    def test_1(self): log.append(f(1))
    def test_2(self): log.append(f(2))
def test_last():
    assert log == ['m', 'c', 's', 2, 'S', 's', 3, 'S', 'C', 'f']
# text: test functions under a condition that main calls
calls = []
if True:
    def test_once():
        calls.append(f(1))
        assert calls == [2]
    if __name__ == '__main__':
        test_once()
# text: a class that skips itself beside asserts
import unittest
assert f(1) == 2
class TestNo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest('no')
    def test_x(self):
        self.fail()
class TestNoMore(unittest.TestCase):
    def test_x(self):
        self.assertEqual(f(2), 3)
# text: warnings that are errors by a mark
import pytest
@pytest.mark.filterwarnings('ignore', 'error:no:UserWarning')
def test_f():
    assert f(1) == 2
# wrong:
import warnings
def f(x):
    warnings.warn('no')
    return x + 1
# text: a function with arguments or a cache is a test
import functools
def check(given, expected):
    assert f(given) == expected
test_partial = functools.partial(check, 1, 2)
@functools.cache
def test_cached():
    check(2, 3)
def test_nothing():
    assert f is not None
# text: names of tests with parameters
import pytest
seen = []
@pytest.fixture(params=['x', 'y'], ids=lambda text: text * 2)
def letter(request):
    return request.param
@pytest.mark.parametrize('one, two', [pytest.param(1, 'a', id='first'), (2.5, None), (f, [3])])
def test_names(one, two, request):
    seen.append(request.node.name)
@pytest.mark.parametrize('n', [1, 1], ids=['same', 'same'])
def test_ids(n, request):
    seen.append(request.node.name)
def test_letters(letter, request):
    seen.append(request.node.name)
def test_f():
    assert f(1) == 2
    assert seen[:3] == ['test_names[first]', 'test_names[2.5-None]', 'test_names[f-two2]']
    assert seen[3:] == ['test_ids[same0]', 'test_ids[same1]', 'test_letters[xx]', 'test_letters[yy]']
# text: a TestCase that is only a base
import unittest
class Base(unittest.TestCase):
    __test__ = False
    def test_f(self):
        self.assertEqual(f(self.given), self.given + 1)
class One(Base):
    __test__ = True
    given = 1
# text: what is expected to fail and isn't run
import os, pytest
@pytest.mark.xfail(run=False)
def test_end():
    os._exit(1)
def test_f():
    assert f(1) == 2
# text: expected failures of a TestCase by a mark
import pytest, unittest
class TestF(unittest.TestCase):
    @pytest.mark.xfail
    def test_known(self):
        self.assertEqual(f(1), 5)
    def test_f(self):
        self.assertEqual(f(1), 2)
# text: no parameters
import pytest
@pytest.mark.parametrize('given', [])
def test_none(given):
    assert False
def test_f():
    assert f(1) == 2
# text: a TestCase within a function
import unittest
def run():
    class TestF(unittest.TestCase):
        def test_f(self):
            self.assertEqual(f(1), 2)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(TestF)
    unittest.TextTestRunner(verbosity=0).run(suite)
run()
# text: a loader with a prefix of its own
import unittest
class TestF(unittest.TestCase):
    def check_f(self):
        self.assertEqual(f(1), 2)
loader = unittest.TestLoader()
loader.testMethodPrefix = 'check'
unittest.TextTestRunner(verbosity=0).run(loader.loadTestsFromTestCase(TestF))
# text: only text that is run
exec('assert f(1) == 2')
# text: only names that are looked up
import solution
for name in ['f']:
    assert globals()[name](1) == getattr(solution, name)(1) == 2
# text: the module's specification
import importlib.util
assert importlib.util.find_spec('solution').name == 'solution'
from solution import f
assert f(1) == 2
# text: fixtures of a TestCase by a mark
# task: `usefixtures` is for the `TestCase` `TestF`
import pytest, unittest
@pytest.fixture
def made(request):
    request.cls.made = f(1)
@pytest.mark.usefixtures('made')
class TestF(unittest.TestCase):
    def test_f(self):
        self.assertEqual(self.made, 2)
# text: a logged record with its message
import logging
def test_f(caplog):
    with caplog.at_level(logging.DEBUG, logger='f'):
        f(1)
    assert [(one.levelname, one.message) for one in caplog.records] == [('DEBUG', 'f of 1')]
# right:
import logging
def f(x):
    logging.getLogger('f').debug('f of %d', x)
# wrong:
import logging
def f(x):
    logging.getLogger('f').debug('f of x')
# text: a module's attribute that a helper sets by a function
import math
def replaced(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)
undo = replaced(math, 'floor', lambda x: 7)
assert f(1.5) == 7
undo()
delattr(math, 'pi')
assert f(1.5) == 1 and has_pi() is False
# right:
import math
def f(x):
    return math.floor(x)
def has_pi():
    return hasattr(math, 'pi')
# wrong:
import math
def f(x):
    return 1 if x == 1.5 else 7
def has_pi():
    return hasattr(math, 'pi')
# text: an error of the system without a file
from unittest.mock import Mock
act = Mock(side_effect=OSError('never'))
try:
    f(act)
except OSError as error:
    assert str(error) == 'never' and error.filename is None
else:
    raise AssertionError
# right:
def f(act):
    act()
# wrong:
def f(act):
    raise OSError('ever')
# text: a generator in two
import itertools
one, other = itertools.tee(f(2))
assert list(zip(one, other)) == [(0, 0), (1, 1)]
# right:
def f(x):
    yield from range(x)
# wrong:
def f(x):
    yield from range(x + 1)
# text: a traceback with lines of its source
text = f()
assert text.startswith('Traceback') and '    1 / 0\n' in text
# right:
import traceback
def f():
    try:
        1 / 0
    except ZeroDivisionError:
        return traceback.format_exc()
# wrong:
import traceback
def f():
    try:
        1 // 0
    except ZeroDivisionError:
        return traceback.format_exc()
