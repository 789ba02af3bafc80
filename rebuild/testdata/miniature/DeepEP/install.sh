here=$(pwd)
cd "$(dirname "$0")"

rm -rf dist
python setup.py bdist_wheel
pip install dist/*.whl

cd "$here"
