import time
from autograder import nbgrader_course
from nbgrader.api import Gradebook
def test_x(tiny,tmp_path):
    out=tmp_path/'out'
    for i in range(3):
        t=time.time(); print(nbgrader_course.lay_out(out,[tiny])); print('lay_out',time.time()-t)
        with Gradebook(f"sqlite:///{out}/gradebook.db") as gb:
            t=time.time()
            for k in range(20):
                gb.update_or_create_student(f"ada{k}")
                gb.update_or_create_submission(tiny.slug,f"ada{k}")
            print('20 students', time.time()-t)
    import subprocess
    print(subprocess.run(['find',str(out)],capture_output=True,text=True).stdout)
    print((out/'nbgrader_config.py').read_text())
