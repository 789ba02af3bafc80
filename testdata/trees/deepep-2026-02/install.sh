# Build a wheel in the project's root and install it
start_dir=$(pwd)
cd "$(dirname "$0")"

rm -rf dist
python setup.py bdist_wheel
pip install dist/*.whl

# Go back
cd "$start_dir"
